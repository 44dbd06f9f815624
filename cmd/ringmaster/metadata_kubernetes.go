// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/metadata/kubernetes"
	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// kubernetesCache is the file in the data directory that holds the last known metadata.
const kubernetesCache = "kubernetes.json"

// kubernetesFlags are the flags of "broker --metadata kubernetes". Each that is not given has an environment variable for a default.
type kubernetesFlags struct {
	cluster    string
	namespace  string
	podName    string
	kubeconfig string
}

// add adds the flags.
func (k *kubernetesFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&k.cluster, "cluster", "", "with --metadata kubernetes: the `NAME` of the BrokerCluster (default: $RINGMASTER_CLUSTER)")
	flags.StringVar(&k.namespace, "namespace", "", "with --metadata kubernetes: its `NAMESPACE` (default: $POD_NAMESPACE, else the one of the service account or kubeconfig)")
	flags.StringVar(&k.podName, "pod-name", "", "with --metadata kubernetes: the broker's pod, whose `NAME` ends in the node id where --node-id does not give it (default: $POD_NAME)")
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "with --metadata kubernetes: the `FILE` that says how to reach the API server (default: $KUBECONFIG, else the pod's service account)")
	noFiles(cmd, "cluster", "namespace", "pod-name")
}

// fileOnly are the flags that are not for Kubernetes, kubernetesOnly those that are for it alone.
var (
	fileOnly       = []string{"advertise", "auto-create-topics", "default-partitions"}
	kubernetesOnly = []string{"cluster", "namespace", "pod-name", "kubeconfig"}
)

// refuse refuses the flags where the metadata come from a file.
func (*kubernetesFlags) refuse(cmd *cobra.Command) error {
	for _, name := range kubernetesOnly {
		if cmd.Flags().Changed(name) {
			return usagef("--%s goes with --metadata kubernetes", name)
		}
	}
	return nil
}

// check fills in what the environment says, and refuses what the BrokerCluster says.
func (k *kubernetesFlags) check(cmd *cobra.Command) error {
	for _, name := range fileOnly {
		if cmd.Flags().Changed(name) {
			return usagef("--%s goes with --metadata file or redis; in Kubernetes the BrokerCluster says it", name)
		}
	}
	k.cluster = cmp.Or(k.cluster, os.Getenv("RINGMASTER_CLUSTER"))
	k.namespace = cmp.Or(k.namespace, os.Getenv("POD_NAMESPACE"))
	k.podName = cmp.Or(k.podName, os.Getenv("POD_NAME"))
	if k.cluster == "" {
		return usagef("--metadata kubernetes needs the name of the BrokerCluster: give --cluster")
	}
	return nil
}

// nodeID is the node id: what --node-id gives, else the ordinal at the end of the pod's name.
func (k *kubernetesFlags) nodeID(cmd *cobra.Command, given int32) (int32, error) {
	if cmd.Flags().Changed("node-id") {
		return given, nil
	}
	if k.podName == "" {
		return 0, usagef("--metadata kubernetes needs the broker's node id: give --node-id or --pod-name")
	}
	ordinal := k.podName[strings.LastIndexByte(k.podName, '-')+1:]
	id, err := strconv.ParseInt(ordinal, 10, 32)
	if err != nil || id < 1 {
		return 0, usagef("--pod-name %q does not end in a node id of at least 1, such as main-broker-1", k.podName)
	}
	return int32(id), nil
}

// open starts to watch the cluster's resources, and returns when they, or what is kept of them on disk, name this broker.
func (k *kubernetesFlags) open(ctx context.Context, log *slog.Logger, dataDir string, nodeID int32) (server.Metadata, error) {
	klog.SetSlogLogger(log)
	config, namespace, err := k.config()
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return nil, errors.New("cannot tell the namespace of the BrokerCluster; give --namespace")
	}
	md, err := kubernetes.Open(ctx, kubernetes.Options{
		Config: config, Namespace: namespace, Cluster: k.cluster, CacheFile: filepath.Join(dataDir, kubernetesCache), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("watch BrokerCluster %s/%s: %w", namespace, k.cluster, err)
	}
	if err := awaitBroker(ctx, log, md, nodeID); err != nil {
		return nil, fmt.Errorf("wait for BrokerCluster %s/%s to name broker %d: %w", namespace, k.cluster, nodeID, err)
	}
	return md, nil
}

// watchable is as much of a source of metadata as it takes to wait for a change.
type watchable interface {
	Snapshot() *metadata.Snapshot
	Changed() <-chan struct{}
}

// awaitBroker waits until the metadata name the broker: a broker that serves before it knows any topic tells clients that there is none.
func awaitBroker(ctx context.Context, log *slog.Logger, md watchable, nodeID int32) error {
	for said := false; ; said = true {
		changed := md.Changed()
		snap := md.Snapshot()
		if slices.ContainsFunc(snap.Brokers, func(b metadata.Broker) bool { return b.ID == nodeID }) {
			return nil
		}
		if !said {
			log.Info("waiting until the BrokerCluster's status names this broker", "nodeID", nodeID)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// config is how to reach the API server, and the namespace that is meant where none is given.
func (k *kubernetesFlags) config() (*rest.Config, string, error) {
	if path := cmp.Or(k.kubeconfig, os.Getenv("KUBECONFIG")); path != "" {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: k.kubeconfig, Precedence: filepath.SplitList(path)}, &clientcmd.ConfigOverrides{})
		config, err := loader.ClientConfig()
		if err != nil {
			return nil, "", fmt.Errorf("read kubeconfig %s: %w", path, err)
		}
		namespace, _, err := loader.Namespace()
		if err != nil {
			return nil, "", fmt.Errorf("read kubeconfig %s: %w", path, err)
		}
		return config, cmp.Or(k.namespace, namespace), nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, "", fmt.Errorf("cannot tell how to reach the API server: %w; run in a pod, or give --kubeconfig", err)
	}
	const own = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	if k.namespace != "" {
		return config, k.namespace, nil
	}
	raw, err := os.ReadFile(own)
	if err != nil {
		return nil, "", fmt.Errorf("cannot tell the pod's namespace: %w; give --namespace", err)
	}
	return config, strings.TrimSpace(string(raw)), nil
}
