"""What tells that something is wrong, and where to look: alarms, a topic for them, a dashboard, saved queries."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from differently_aws.logs import NAMESPACE

from ..configuration import Configuration
from ..functions import API_FUNCTIONS, FUNCTIONS, STREAM_FUNCTIONS
from ..names import Names
from ..watch import ALARMS, LAMBDA, QUERIES, Alarm, Series

PERIOD = Duration.minutes(5)
WIDTH = 12


class ObservabilityStack(Stack):
    def __init__(
        self, scope: Construct, construct_id: str, configuration: Configuration, names: Names, **stack: Any
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self._names = names
        self._runbooks = configuration.alarms.runbooks or "docs/how-to/runbooks.md"
        self._topic = self._told(configuration.alarms.email)
        self.alarms = [self._alarm(alarm) for alarm in ALARMS]
        self._dashboard()
        for query in QUERIES:
            logs.CfnQueryDefinition(
                self,
                f"Query{query.name.title().replace('-', '')}",
                name=f"{names.installation}/{query.name}",
                query_string=query.text,
                log_group_names=[f"/aws/lambda/{names.function(name)}" for name in query.functions],
            )
        CfnOutput(self, "AlarmTopicArn", value=self._topic.topic_arn)

    def _told(self, email: str | None) -> sns.Topic:
        topic = sns.Topic(self, "Alarms", display_name=f"{self._names.installation} alarms", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Ring",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        if email is not None:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _alarm(self, alarm: Alarm) -> cloudwatch.Alarm:
        made = cloudwatch.Alarm(
            self,
            alarm.slug.title().replace("-", ""),
            alarm_name=f"{self._names.installation}-{alarm.slug}",
            alarm_description=f"{alarm.about}. What to do: {self._runbooks}#{alarm.slug}",
            metric=self._sum(alarm.series),
            threshold=alarm.above if alarm.below is None else alarm.below,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
            if alarm.below is None
            else cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=alarm.periods,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING
            if alarm.silence_rings
            else cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        made.add_alarm_action(actions.SnsAction(self._topic))
        made.add_ok_action(actions.SnsAction(self._topic))
        return made

    def _sum(self, series: tuple[Series, ...]) -> cloudwatch.IMetric:
        if len(series) == 1:
            return self._metric(series[0])
        used = {f"m{number}": self._metric(entry) for number, entry in enumerate(series)}
        # A series without data must not silence the others.
        expression = " + ".join(f"FILL({name}, 0)" for name in used)
        return cloudwatch.MathExpression(expression=expression, using_metrics=used, period=PERIOD)

    def _metric(self, series: Series) -> cloudwatch.Metric:
        named = {
            "api": self._names.installation,
            "queue": self._names.queue,
            "queue-dead": f"{self._names.queue}-dead",
            "deliver-queue": self._names.deliver,
            "deliver-queue-dead": f"{self._names.deliver}-dead",
            "failed": self._names.function("failed"),
            "machine": f"arn:{self.partition}:states:{self.region}:{self.account}:stateMachine:{self._names.machine}",
            **{name: self._names.function(name) for name in FUNCTIONS},
        }
        return cloudwatch.Metric(
            namespace=series.namespace,
            metric_name=series.metric,
            dimensions_map={
                key: named[value[1:-1]] if value.startswith("{") else value for key, value in series.dimensions.items()
            },
            statistic=series.statistic,
            period=PERIOD,
        )

    def _dashboard(self) -> None:
        board = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=self._names.installation)
        board.add_widgets(cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(self.alarms), width=2 * WIDTH))
        board.add_widgets(
            self._graph("Requests by outcome", [
                self._own("Requests", service, outcome=outcome)
                for service in API_FUNCTIONS[1:] for outcome in ("ok", "refused", "failed")
            ]),
            self._graph("Time of answers (p99, ms)", [
                self._own("RequestDuration", service, "p99", outcome="ok") for service in API_FUNCTIONS[1:]
            ]),
        )  # fmt: skip
        board.add_widgets(
            self._graph("Waiting and admitted", [
                self._own("Waiting", "dispatch", "Maximum"), self._own("Admitted", "dispatch"),
            ]),
            self._graph("Due when the tick looked", [self._own("DueRows", "tick", "Maximum")]),
        )  # fmt: skip
        board.add_widgets(
            self._graph("Pools", [
                self._own("PoolsUnusable", "worker"), self._own("PoolsNotReconciled", "reconcile"),
                self._own("Lost", "reconcile"), self._own("Orphans", "reconcile"),
            ]),
            self._graph("Messages lost, by what they were", [
                self._own("MessagesLost", service, kind=kind)
                for service, kind in (("control", "worker"), ("control", "dispatch"), ("worker", "wait"))
            ]),
        )  # fmt: skip
        board.add_widgets(
            self._graph("Webhooks", [
                self._own("WebhookTries", "deliver"), self._own("WebhooksDisabled", "deliver"),
                self._own("Deliveries", "projector"), self._own("EventsNotPublished", "projector"),
            ]),
            self._graph("How late events are told (ms)", [
                self._metric(Series(LAMBDA, "IteratorAge", {"FunctionName": f"{{{name}}}"}, "Maximum"))
                for name in STREAM_FUNCTIONS
            ]),
        )  # fmt: skip
        board.add_widgets(
            self._graph("Functions at work", [
                self._metric(Series(LAMBDA, "ConcurrentExecutions", {"FunctionName": f"{{{name}}}"}, "Maximum"))
                for name in FUNCTIONS
            ]),
            self._graph("Errors of functions", [
                self._metric(Series(LAMBDA, "Errors", {"FunctionName": f"{{{name}}}"})) for name in FUNCTIONS
            ]),
        )  # fmt: skip

    def _own(self, metric: str, service: str, statistic: str = "Sum", **dimensions: str) -> cloudwatch.Metric:
        return self._metric(Series(NAMESPACE, metric, {"service": service, **dimensions}, statistic))

    def _graph(self, title: str, series: list[cloudwatch.Metric]) -> cloudwatch.GraphWidget:
        return cloudwatch.GraphWidget(title=title, left=series, width=WIDTH)
