"""What moves work along: worker, dispatch, reconcile and tick, the queue between them and the clock."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from differently_core.store.stream import EVENTS_PREFIX

from ..constructs.function import Handler, Layers, Surroundings
from ..functions import FUNCTIONS, STREAM_FUNCTIONS, WORK_FUNCTIONS
from ..nag import accept

SWEEP_SECONDS = 50
"""How long one tick goes on while something is due; the next comes after a minute."""
DELIVERIES_MAX = 5
DEAD_DAYS = 14
NUDGE_MINUTES_MAX = 5
"""An asynchronous message that could not be delivered for so long is late: the sweep did its work meanwhile."""
BATCH_MAX = 10
STREAM_BATCH_MAX = 100
STREAM_RETRIES_MAX = 10
"""What fails so often is passed over, to the queue of what failed; its row stays in the log."""
DEAD_LETTERS = "The queue itself has a queue for dead letters."
DEAD_END = "It is where dead letters go."
SEALER_CLOCK = {"Compare": {"kind": "compare"}}
"""What the sealer is sent each minute."""
CLOCK = {
    "Sweep": {"kind": "sweep", "seconds": SWEEP_SECONDS},
    "Probe": {"kind": "probe"},
    "Passes": {"kind": "passes"},
    "Account": {"kind": "account"},
}
"""What the tick is sent each minute: one message for each, so that a pool that hangs holds up no sweep."""


class WorkersStack(Stack):
    def __init__(self, scope: Construct, construct_id: str, around: Surroundings, **stack: Any) -> None:
        super().__init__(scope, construct_id, **stack)
        layers = Layers(self, around.packages)
        self.functions = {name: Handler(self, name, around, layers) for name in WORK_FUNCTIONS}
        self.dead = self._queue("DeadQueue", f"{around.names.queue}-dead", retention=Duration.days(DEAD_DAYS))
        self.queue = self._queue(
            "DispatchQueue",
            around.names.queue,
            retention=Duration.hours(1),
            visibility=Duration.seconds(6 * FUNCTIONS["dispatch"].seconds),
            dead=sqs.DeadLetterQueue(queue=self.dead, max_receive_count=DELIVERIES_MAX),
        )
        self.failed = self._queue("FailedQueue", around.names.function("failed"), retention=Duration.days(DEAD_DAYS))
        accept(self.failed, "AwsSolutions-SQS3", DEAD_END)
        self.undelivered = self._queue(
            "UndeliveredQueue", f"{around.names.deliver}-dead", retention=Duration.days(DEAD_DAYS)
        )
        self.deliver = self._queue(
            "DeliverQueue",
            around.names.deliver,
            retention=Duration.hours(1),
            visibility=Duration.seconds(6 * FUNCTIONS["deliver"].seconds),
            dead=sqs.DeadLetterQueue(queue=self.undelivered, max_receive_count=DELIVERIES_MAX),
        )
        self.bus = events.EventBus(
            self, "Events", event_bus_name=around.names.bus, description="What changes in Differently, as it happens"
        )
        for queue in (self.dead, self.failed, self.undelivered):
            accept(queue, "Serverless-SQSRedrivePolicy", DEAD_END)
        self._feed(around)
        self._follow(around)
        self._start_each_minute(around)
        CfnOutput(self, "DispatchQueueUrl", value=self.queue.queue_url)
        CfnOutput(self, "DeliverQueueUrl", value=self.deliver.queue_url)
        CfnOutput(self, "EventBusName", value=self.bus.event_bus_name)
        CfnOutput(self, "FailedQueueUrl", value=self.failed.queue_url)

    def _queue(
        self,
        construct_id: str,
        name: str,
        *,
        retention: Duration,
        visibility: Duration | None = None,
        dead: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            queue_name=name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=retention,
            visibility_timeout=visibility,
            dead_letter_queue=dead,
        )

    def _feed(self, around: Surroundings) -> None:
        chosen = around.configuration.functions
        # One message of deliver's is one webhook, and a run of it is as slow as its receiver: never two in one batch.
        for name, queue, batch, most in (
            ("dispatch", self.queue, BATCH_MAX, chosen.dispatch_concurrency),
            ("deliver", self.deliver, 1, chosen.deliver_concurrency),
        ):
            self.functions[name].add_event_source(
                sources.SqsEventSource(queue, batch_size=batch, report_batch_item_failures=True, max_concurrency=most)
            )
            accept(self.functions[name], "Serverless-LambdaEventSourceMappingDestination", DEAD_LETTERS)
        for name in ("worker", "reconcile", "tick", "sealer"):
            lambda_.EventInvokeConfig(
                self,
                f"{name.capitalize()}Invoke",
                function=self.functions[name],
                max_event_age=Duration.minutes(NUDGE_MINUTES_MAX),
                retry_attempts=1,
                on_failure=destinations.SqsDestination(self.failed),
            )

    def _follow(self, around: Surroundings) -> None:
        """Each consumer of the log's stream has a place of its own in it, and is sent events alone."""
        for name in STREAM_FUNCTIONS:
            lambda_.EventSourceMapping(
                self,
                f"{name.capitalize()}Stream",
                target=self.functions[name],
                event_source_arn=around.resources.log_stream,
                # With LATEST, what is written while the mapping is made or changed would be skipped.
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=STREAM_BATCH_MAX,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                retry_attempts=STREAM_RETRIES_MAX,
                on_failure=sources.SqsDlq(self.failed),
                filters=[
                    lambda_.FilterCriteria.filter({"dynamodb": {"Keys": {"pk": {"S": [{"prefix": EVENTS_PREFIX}]}}}})
                ],
            )

    def _start_each_minute(self, around: Surroundings) -> None:
        tick = self.functions["tick"]
        rule = events.Rule(
            self,
            "EachMinute",
            rule_name=around.names.function("each-minute"),
            description="Sweeps what is due, probes pools, has them reconciled",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[
                targets.LambdaFunction(
                    tick, event=events.RuleTargetInput.from_object(message), retry_attempts=0,
                    max_event_age=Duration.minutes(1),
                )
                for message in CLOCK.values()
            ],
        )  # fmt: skip
        for message in SEALER_CLOCK.values():
            rule.add_target(
                targets.LambdaFunction(
                    self.functions["sealer"], event=events.RuleTargetInput.from_object(message), retry_attempts=0,
                    max_event_age=Duration.minutes(1),
                )
            )  # fmt: skip
        accept(rule, "Serverless-EventBusDLQ", "The next minute's message is the same; an alarm tells when none comes.")
