"""A VPC for the functions that call backends, where backends have no public address."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from ..configuration import Configuration
from ..constructs.function import retention

ENDPOINTS = {
    "Kms": ec2.InterfaceVpcEndpointAwsService.KMS,
    "Lambda": ec2.InterfaceVpcEndpointAwsService.LAMBDA_,
    "SecretsManager": ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
    "Sqs": ec2.InterfaceVpcEndpointAwsService.SQS,
    "StepFunctions": ec2.InterfaceVpcEndpointAwsService.STEP_FUNCTIONS,
}
"""What functions call besides DynamoDB; needed where there is no way out to the internet."""


class NetworkStack(Stack):
    def __init__(self, scope: Construct, construct_id: str, configuration: Configuration, **stack: Any) -> None:
        super().__init__(scope, construct_id, **stack)
        gateways = configuration.network.nat_gateways
        inside = ec2.SubnetType.PRIVATE_WITH_EGRESS if gateways else ec2.SubnetType.PRIVATE_ISOLATED
        public = [ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=24)]
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(configuration.network.cidr),
            max_azs=2,
            nat_gateways=gateways,
            restrict_default_security_group=False,
            subnet_configuration=[
                *(public if gateways else []),
                ec2.SubnetConfiguration(name="functions", subnet_type=inside, cidr_mask=20),
            ],
            flow_logs={
                "All": ec2.FlowLogOptions(
                    destination=ec2.FlowLogDestination.to_cloud_watch_logs(
                        logs.LogGroup(self, "FlowLog", retention=retention(configuration.logs.days))
                    ),
                    traffic_type=ec2.FlowLogTrafficType.REJECT,
                )
            },
        )
        self.vpc.add_gateway_endpoint("DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
        self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        self.functions = ec2.SecurityGroup(
            self, "Functions", vpc=self.vpc, description="Functions that call backends: out to anywhere, nothing in"
        )
        if gateways == 0:
            for name, service in ENDPOINTS.items():
                endpoint = self.vpc.add_interface_endpoint(name, service=service, open=False)
                endpoint.connections.allow_default_port_from(self.functions)
