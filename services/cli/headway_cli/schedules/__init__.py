"""Commands about manifests, groups, jobs, applications and pauses."""
