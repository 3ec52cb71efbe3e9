"""The CDK application: what a deployment of Differently consists of."""
