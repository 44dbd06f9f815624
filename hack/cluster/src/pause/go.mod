module github.com/ringmaster-dev/ringmaster/hack/cluster/src/pause

go 1.26.0
