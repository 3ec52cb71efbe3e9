"""The API: authorizer, control, admin and data behind one Regional REST API."""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from differently_api.routes import ROUTES

from ..api_definition import Uris, definition
from ..configuration import Configuration, Waf
from ..constructs.function import TRACED, Handler, Layers, Surroundings, retention
from ..functions import API_FUNCTIONS
from ..nag import accept

STAGE = "live"
LOGGED = {
    "requestId": "$context.requestId",
    "sourceIp": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "resource": "$context.resourcePath",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "milliseconds": "$context.responseLatency",
    "keyId": "$context.authorizer.keyId",
    "error": "$context.error.responseType",
}
"""What the gateway writes of each request. Never the path or query: they may hold what callers name their files."""


class ApiStack(Stack):
    def __init__(self, scope: Construct, construct_id: str, around: Surroundings, **stack: Any) -> None:
        super().__init__(scope, construct_id, **stack)
        self._configuration = configuration = around.configuration
        self._gateway_account: apigateway.CfnAccount | None = None
        layers = Layers(self, around.packages)
        self.functions = {name: Handler(self, name, around, layers) for name in API_FUNCTIONS}
        uris = Uris(
            invoke={name: self._uri(function, streaming=False) for name, function in self.functions.items()},
            stream=self._uri(self.functions["data"], streaming=True) if configuration.api.streaming else None,
        )
        self.api = apigateway.SpecRestApi(
            self,
            "Api",
            rest_api_name=around.names.installation,
            api_definition=apigateway.ApiDefinition.from_inline(
                definition(around.names.installation, ROUTES, uris, configuration.api.allowed_origins)
            ),
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            cloud_watch_role=False,
            deploy_options=self._stage(configuration),
        )
        for name, function in self.functions.items():
            lambda_.CfnPermission(
                self,
                f"{name.capitalize()}Permission",
                action="lambda:InvokeFunction",
                function_name=function.function_arn,
                principal="apigateway.amazonaws.com",
                source_arn=self._source(name),
            )
        self._acknowledge()
        if configuration.waf.enabled:
            self._filter(configuration.waf)
        CfnOutput(self, "ApiUrl", value=self.api.url)
        CfnOutput(self, "ApiId", value=self.api.rest_api_id)

    def _uri(self, function: Handler, *, streaming: bool) -> str:
        gateway = f"arn:{Aws.PARTITION}:apigateway:{Aws.REGION}:lambda:path"
        if streaming:
            return f"{gateway}/2021-11-15/functions/{function.function_arn}/response-streaming-invocations"
        return f"{gateway}/2015-03-31/functions/{function.function_arn}/invocations"

    def _source(self, function: str) -> str:
        """The authorizer is called for the API as a whole, the others for what is called in the stage."""
        what = "authorizers/*" if function == "authorizer" else f"{STAGE}/*/*"
        return f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:{self.api.rest_api_id}/{what}"

    def _stage(self, configuration: Configuration) -> apigateway.StageOptions:
        chosen = configuration.api
        common: dict[str, Any] = {
            "stage_name": STAGE,
            "throttling_rate_limit": chosen.requests_per_second,
            "throttling_burst_limit": chosen.burst,
            "metrics_enabled": True,
            "data_trace_enabled": False,
        }
        if not chosen.access_logs:
            return apigateway.StageOptions(**common, logging_level=apigateway.MethodLoggingLevel.OFF)
        self._let_gateway_log()
        log = logs.LogGroup(
            self, "AccessLog", retention=retention(configuration.logs.days), removal_policy=RemovalPolicy.DESTROY
        )
        return apigateway.StageOptions(
            **common,
            logging_level=apigateway.MethodLoggingLevel.ERROR,
            access_log_destination=apigateway.LogGroupLogDestination(log),
            access_log_format=apigateway.AccessLogFormat.custom(self.to_json_string(LOGGED)),
        )

    def _let_gateway_log(self) -> None:
        """API Gateway writes logs under one role of the account, which has to be told to it."""
        role = iam.Role(
            self,
            "GatewayLogs",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")
            ],
        )
        accept(
            role,
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
            "AmazonAPIGatewayPushToCloudWatchLogs]",
            "The policy that API Gateway asks for, for itself alone.",
        )
        self._gateway_account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)

    def _acknowledge(self) -> None:
        if self._gateway_account is not None:
            self.api.deployment_stage.node.add_dependency(self._gateway_account)
        else:
            for rule in ("AwsSolutions-APIG1", "AwsSolutions-APIG6", "Serverless-APIGWAccessLogging"):
                accept(self.api.deployment_stage, rule, "The operator switched access logs off.")
        accept(
            self.api, "AwsSolutions-APIG2", "The functions check every request against the one declaration of routes."
        )
        if not self._configuration.waf.enabled:
            accept(
                self.api.deployment_stage,
                "AwsSolutions-APIG3",
                "A switch of the configuration: it costs money while nothing is asked.",
            )
        accept(
            self.api.deployment_stage,
            "Serverless-APIGWXrayEnabled",
            TRACED,
        )

    def _filter(self, chosen: Waf) -> None:
        acl = wafv2.CfnWebACL(
            self,
            "Waf",
            scope="REGIONAL",
            default_action={"allow": {}},
            visibility_config=_seen("all"),
            rules=[
                {
                    "name": "rate",
                    "priority": 0,
                    "action": {"block": {}},
                    "statement": {
                        "rateBasedStatement": {"limit": chosen.requests_per_five_minutes, "aggregateKeyType": "IP"}
                    },
                    "visibilityConfig": _seen("rate"),
                },
                {
                    "name": "reputation",
                    "priority": 1,
                    "overrideAction": {"none": {}},
                    "statement": {
                        "managedRuleGroupStatement": {
                            "vendorName": "AWS", "name": "AWSManagedRulesAmazonIpReputationList",
                        }
                    },
                    "visibilityConfig": _seen("reputation"),
                },
            ],
        )  # fmt: skip
        wafv2.CfnWebACLAssociation(
            self, "WafAssociation", resource_arn=self.api.deployment_stage.stage_arn, web_acl_arn=acl.attr_arn
        )


def _seen(name: str) -> dict[str, Any]:
    return {"cloudWatchMetricsEnabled": True, "metricName": name, "sampledRequestsEnabled": True}
