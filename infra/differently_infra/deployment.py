"""All stacks of one deployment, in the order in which they need each other."""

from __future__ import annotations

from importlib.metadata import version

from aws_cdk import App, Aws, Environment, Tags

from .configuration import Configuration
from .constructs.function import Surroundings
from .names import Names
from .packages import Packages
from .permissions import Resources
from .stacks.api import ApiStack
from .stacks.data import DataStack
from .stacks.microvms import MicrovmsStack
from .stacks.network import NetworkStack
from .stacks.observability import ObservabilityStack
from .stacks.secrets import SecretsStack
from .stacks.workers import WorkersStack
from .stacks.workflow import WorkflowStack


class Deployment:
    """Adds the stacks to `app`. `environment` may leave account and Region open."""

    def __init__(
        self, app: App, configuration: Configuration, packages: Packages, environment: Environment | None = None
    ) -> None:
        names = Names(configuration.name, configuration.prefix)
        common = {"env": environment, "termination_protection": configuration.keep_data}
        self.data = DataStack(
            app, names.stack("Data"), configuration, description="Differently: configuration, state and log",
            **common,
        )  # fmt: skip
        self.secrets = SecretsStack(
            app, names.stack("Secrets"), configuration, names,
            description="Differently: peppers, and the bounds of every function", **common,
        )  # fmt: skip
        self.network = (
            NetworkStack(
                app,
                names.stack("Network"),
                configuration,
                description="Differently: a VPC for backends",
                env=environment,
            )
            if configuration.network.vpc
            else None
        )
        around = self._surroundings(configuration, names, packages)
        self.workers = WorkersStack(
            app, names.stack("Workers"), around, description="Differently: what moves work along", env=environment
        )
        self.workflow = WorkflowStack(
            app, names.stack("Workflow"), names, self.workers.functions["worker"],
            description="Differently: waiting for slow backends", env=environment,
        )  # fmt: skip
        self.api = ApiStack(app, names.stack("Api"), around, description="Differently: the API", env=environment)
        self.observability = (
            ObservabilityStack(
                app, names.stack("Observability"), configuration, names,
                description="Differently: alarms, a dashboard, saved queries", env=environment,
            )
            if configuration.alarms.enabled
            else None
        )  # fmt: skip
        self.microvms = (
            MicrovmsStack(
                app, names.stack("Microvms"), configuration, names,
                description="Differently: an image of Lambda MicroVMs", env=environment,
            )
            if configuration.microvms.enabled
            else None
        )  # fmt: skip
        # Names alone tie these together, so CloudFormation has to be told what comes first.
        for later in (self.workers, self.workflow, self.api):
            later.add_stack_dependency(self.secrets)
        self.api.add_stack_dependency(self.workers)
        self.api.add_stack_dependency(self.workflow)
        if self.observability is not None:
            self.observability.add_stack_dependency(self.api)
        for name, value in {"differently:installation": configuration.name, **configuration.tags}.items():
            Tags.of(app).add(name, value)

    def _surroundings(self, configuration: Configuration, names: Names, packages: Packages) -> Surroundings:
        def arn(service: str, resource: str) -> str:
            return f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"

        resources = Resources(
            config=self.data.config.table_arn,
            state=self.data.state.table_arn,
            log=self.data.log.table_arn,
            log_stream=self.data.log.table_stream_arn,
            worker=arn("lambda", f"function:{names.function('worker')}"),
            reconcile=arn("lambda", f"function:{names.function('reconcile')}"),
            queue=arn("sqs", names.queue),
            deliver=arn("sqs", names.deliver),
            bus=arn("events", f"event-bus/{names.bus}"),
            machine=arn("states", f"stateMachine:{names.machine}"),
            pepper=self.secrets.pepper.secret_arn,
            secrets_key=self.data.secrets_key.key_arn,
            staged=f"{self.data.export_value(self.data.staging.bucket_arn)}/uploads/*",
            archived=f"{self.data.export_value(self.data.archive.bucket_arn)}/roots/*",
            credentials=configuration.adapters.credential_arns,
            microvms=(arn("lambda", f"microvm-image:{names.microvms}"), arn("lambda", "microvm:*"))
            if configuration.microvms.enabled
            else (),
        )
        return Surroundings(
            configuration=configuration,
            names=names,
            packages=packages,
            resources=resources,
            tables={
                "CONFIG_TABLE": self.data.config.table_name,
                "STATE_TABLE": self.data.state.table_name,
                "LOG_TABLE": self.data.log.table_name,
            },
            staging_bucket=self.data.staging.bucket_name,
            archive_bucket=self.data.archive.bucket_name,
            queue_url=f"https://sqs.{Aws.REGION}.{Aws.URL_SUFFIX}/{Aws.ACCOUNT_ID}/{names.queue}",
            deliver_url=f"https://sqs.{Aws.REGION}.{Aws.URL_SUFFIX}/{Aws.ACCOUNT_ID}/{names.deliver}",
            version=version("differently-server"),
            vpc=self.network.vpc if self.network is not None else None,
            security_group=self.network.functions if self.network is not None else None,
        )
