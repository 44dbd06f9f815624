// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
	"github.com/ringmaster-dev/ringmaster/controllers/topic"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

// clusterName is the BrokerCluster's name.
const clusterName = "main"

// Cluster is what StartCluster starts.
type Cluster struct {
	// Ports are where the brokers listen, on 127.0.0.1.
	Ports []int32
	// Advertised are the ports that clients are told.
	Advertised []int32
	// AutoCreateTopics says whether a client that names an unknown topic creates it.
	AutoCreateTopics bool
	// Tap, if not nil, is put before the brokers: clients are told its proxies' addresses, and Advertised is not used.
	Tap *Tap
	// Flags are the brokers', besides those that all have.
	Flags []string
}

// StartCluster starts as many brokers as there are ports, which take their metadata from a real API server. The topic controller runs here and places the partitions.
// What nothing but a cluster with nodes can do, this does in its place: it runs the brokers' processes as the StatefulSet's pods would run, and
// writes the BrokerCluster's status, which names their addresses. KUBEBUILDER_ASSETS must name the API server's programs.
func StartCluster(bin, dir string, c Cluster) (w *World, err error) {
	w = &World{Name: fmt.Sprintf("%d brokers", len(c.Ports))}
	defer func(started *World) {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}(w)
	env, err := testenv.Start(io.Discard)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, env.Stop)
	manager, err := env.StartManager("", func(m ctrl.Manager) error {
		return (&topic.Reconciler{Client: m.GetClient(), Recorder: m.GetEventRecorder("conformance")}).SetupWithManager(m)
	})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, manager.Stop)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	namespace, err := env.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the brokers' directory: %w", err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(env.Config, namespace, kubeconfig); err != nil {
		return nil, err
	}
	w.kube, w.namespace = env.Client, namespace
	if c.Tap != nil {
		if c.Advertised, err = w.tapped(c); err != nil {
			return nil, err
		}
	}
	if err := declare(ctx, env.Client, namespace, c); err != nil {
		return nil, err
	}
	for i, port := range c.Ports {
		id, address := strconv.Itoa(i+1), Local(port)
		w.Addresses = append(w.Addresses, address)
		_, err := w.startBroker(bin, filepath.Join(dir, "broker-"+id), nil, append([]string{"--metadata", "kubernetes", "--cluster", clusterName, "--namespace", namespace,
			"--kubeconfig", kubeconfig, "--node-id", id, "--listen", address}, c.Flags...)...)
		if err != nil {
			return nil, err
		}
	}
	w.Bootstrap = w.Addresses[0]
	if c.Tap != nil {
		w.Bootstrap = Local(c.Advertised[0])
	}
	for _, p := range w.processes {
		if _, err := p.address(); err != nil {
			return nil, err
		}
	}
	return w, errors.Join(answers(w.Bootstrap, len(c.Ports)), awaitPlaced(env.Client, namespace))
}

// tapped puts a proxy with the tap before each broker, and returns the proxies' ports.
func (w *World) tapped(c Cluster) ([]int32, error) {
	var ports []int32
	for _, port := range c.Ports {
		p, err := newProxy()
		if err != nil {
			return nil, err
		}
		w.closers = append(w.closers, p.Close)
		p.tap = c.Tap
		p.Start(Local(port))
		ports = append(ports, p.port())
	}
	return ports, nil
}

// Local is a port of 127.0.0.1.
func Local(port int32) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))) }

// declare makes a BrokerCluster whose status names the ports, and the topic that keeps its committed offsets.
func declare(ctx context.Context, k kube.Client, namespace string, c Cluster) error {
	replicas := int32(len(c.Ports))
	cluster := &v1alpha1.BrokerCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: namespace}}
	cluster.Spec.Replicas = &replicas
	cluster.Spec.Config.AutoCreateTopics = v1alpha1.TopicCreationDisabled
	if c.AutoCreateTopics {
		cluster.Spec.Config.AutoCreateTopics = v1alpha1.TopicCreationEnabled
	}
	if err := k.Create(ctx, cluster); err != nil {
		return fmt.Errorf("create the BrokerCluster: %w", err)
	}
	for i, port := range c.Advertised {
		id := int32(i + 1)
		cluster.Status.Brokers = append(cluster.Status.Brokers, v1alpha1.BrokerStatus{
			ID: id, PodName: resources.PodName(cluster, id), Host: "127.0.0.1", Port: port, Phase: v1alpha1.BrokerReady,
		})
	}
	cluster.Status.Replicas, cluster.Status.ReadyReplicas = replicas, replicas
	if err := k.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("write the BrokerCluster's status: %w", err)
	}
	if err := k.Create(ctx, resources.OffsetsTopic(cluster)); err != nil {
		return fmt.Errorf("create the offsets' Topic: %w", err)
	}
	return nil
}

// awaitPlaced waits until the topic that keeps the committed offsets has leaders.
func awaitPlaced(c kube.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		topics := &v1alpha1.TopicList{}
		if err := c.List(ctx, topics, kube.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list the Topics: %w", err)
		}
		if len(topics.Items) == 1 && topics.Items[0].Status.Partitions == topics.Items[0].Spec.Partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the offsets' Topic has no leaders after %s", startLimit)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// writeKubeconfig writes what a broker needs to reach the API server.
func writeKubeconfig(c *rest.Config, namespace, path string) error {
	const name = "conformance"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
