// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
	"github.com/ringmaster-dev/ringmaster/controllers/topic"
	"github.com/ringmaster-dev/ringmaster/test/rebalance/thin"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

const (
	clusterName = "main"
	podLabel    = "burst"
	// writersAtOnce is how many pods are written at the same time, and worldBroker where the broker listens.
	writersAtOnce = 16
	worldBroker   = "127.0.0.1:19192"
)

// world is an API server without nodes, with the operator's controllers of topics and groups, and a broker. Pods are objects in it.
type world struct {
	kube      kube.Client
	namespace string
	shape     shape
	closers   []func() error
}

func startWorld(ctx context.Context, o *options, s shape) (w *world, err error) {
	w = &world{shape: s}
	defer func(started *world) {
		if err != nil {
			err = errors.Join(err, started.stop())
		}
	}(w)
	env, err := testenv.Start(io.Discard)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, env.Stop)
	manager, err := env.StartManager("", controllers)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, manager.Stop)
	if w.namespace, err = env.Namespace(ctx); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(env.Config)
	config.QPS = -1
	if w.kube, err = kube.New(config, kube.Options{Scheme: env.Scheme}); err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	if err := w.declare(ctx); err != nil {
		return nil, err
	}
	if err := w.startBroker(ctx, o, env.Config); err != nil {
		return nil, err
	}
	return w, nil
}

// controllers adds the operator's that this needs.
func controllers(m ctrl.Manager) error {
	recorder := m.GetEventRecorder("rebalance")
	observer := consumergroup.NewObserver(m, recorder)
	return errors.Join(
		(&topic.Reconciler{Client: m.GetClient(), Recorder: recorder}).SetupWithManager(m),
		(&consumergroup.Reconciler{Client: m.GetClient(), Recorder: recorder, Observer: observer}).SetupWithManager(m),
		observer.SetupWithManager(m))
}

// declare makes a BrokerCluster, whose status it writes as the operator would, and the topics.
func (w *world) declare(ctx context.Context) error {
	one := int32(1)
	cluster := &v1alpha1.BrokerCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: w.namespace}}
	cluster.Spec.Replicas = &one
	if err := w.kube.Create(ctx, cluster); err != nil {
		return fmt.Errorf("create the BrokerCluster: %w", err)
	}
	cluster.Status.Brokers = []v1alpha1.BrokerStatus{{ID: 1, PodName: resources.PodName(cluster, 1), Host: "127.0.0.1", Port: 19192, Phase: v1alpha1.BrokerReady}}
	cluster.Status.Replicas, cluster.Status.ReadyReplicas = 1, 1
	if err := w.kube.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("write the BrokerCluster's status: %w", err)
	}
	orders := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Name: topicName, Namespace: w.namespace}}
	orders.Spec.ClusterRef, orders.Spec.Partitions = clusterName, int32(w.shape.partitions)
	if err := errors.Join(w.kube.Create(ctx, resources.OffsetsTopic(cluster)), w.kube.Create(ctx, orders)); err != nil {
		return fmt.Errorf("create the Topics: %w", err)
	}
	return nil
}

func (w *world) startBroker(ctx context.Context, o *options, config *rest.Config) error {
	dir := filepath.Join(o.dir, "world")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750)); err != nil {
		return fmt.Errorf("make the broker's folder: %w", err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["it"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["it"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	c.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it", Namespace: w.namespace}
	c.CurrentContext = "it"
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "broker.log"))
	if err != nil {
		return fmt.Errorf("make the broker's log: %w", err)
	}
	defer log.Close()
	broker := exec.CommandContext(ctx, o.ringmaster, "broker", "--data-dir", filepath.Join(dir, "data"), "--metadata", "kubernetes", "--cluster", clusterName,
		"--namespace", w.namespace, "--kubeconfig", kubeconfig, "--node-id", strconv.Itoa(1), "--listen", worldBroker)
	broker.Stdout, broker.Stderr, broker.SysProcAttr = log, log, dies()
	if err := broker.Start(); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	w.closers = append(w.closers, func() error {
		_ = broker.Process.Kill() // it may have ended
		_ = broker.Wait()
		return nil
	})
	return nil
}

func (w *world) stop() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

// group is the one of a round: a broker may still know that of the round before.
func (w *world) group(protocol string, round int) *v1alpha1.ConsumerGroup {
	g := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("burst-%s-%d", protocol, round), Namespace: w.namespace}}
	g.Spec.ClusterRef, g.Spec.Topics = clusterName, []string{topicName}
	g.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": podLabel}}
	return g
}

// round makes the group once.
func (w *world) round(ctx context.Context, b *burst, number int) error {
	ctx, cancel := context.WithTimeout(ctx, burstLimit)
	defer cancel()
	pods, err := w.pods(ctx, number)
	if err != nil {
		return err
	}
	protocol := "classic"
	if b.Consumer {
		protocol = "consumer"
	}
	g := w.group(protocol, number)
	if err := w.kube.Create(ctx, g); err != nil {
		return fmt.Errorf("create the ConsumerGroup: %w", err)
	}
	team := &thin.Team{Address: worldBroker, Group: g.Name, Topic: topicName, Partitions: b.Partitions, Consumer: b.Consumer}
	if err := team.Connect(ctx, names(b.Members)); err != nil {
		return err
	}
	if err := w.known(ctx, g); err != nil {
		return err
	}
	begin := team.Join(ctx)
	err = w.ready(ctx, pods)
	ready := time.Now()
	var at time.Time
	if err == nil {
		at, err = team.Stable(ctx, burstCalm)
	}
	if err == nil {
		err = w.kube.Get(ctx, kube.ObjectKeyFromObject(g), g)
	}
	team.Leave()
	if err != nil {
		return fmt.Errorf("a managed group with %d members: %w", b.Members, err)
	}
	b.Times, b.LastReady = append(b.Times, at.Sub(begin)), append(b.LastReady, at.Sub(ready))
	b.Generations = max(b.Generations, g.Status.Generation)
	return w.clear(ctx, g, pods)
}

// known waits until the group has been reconciled for the first time.
func (w *world) known(ctx context.Context, g *v1alpha1.ConsumerGroup) error {
	for {
		if err := w.kube.Get(ctx, kube.ObjectKeyFromObject(g), g); err != nil {
			return fmt.Errorf("read the ConsumerGroup: %w", err)
		}
		if g.Status.ObservedGeneration == g.Generation {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the ConsumerGroup is not reconciled: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// pods makes the pods, which are not Ready.
func (w *world) pods(ctx context.Context, number int) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, w.shape.members)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writersAtOnce)
	for i, name := range names(len(pods)) {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: map[string]string{"app": podLabel}}}
		pods[i].Spec.NodeName, pods[i].Spec.Containers = "nowhere", []corev1.Container{{Name: "member", Image: "member"}}
		g.Go(func() error { return w.kube.Create(ctx, pods[i]) })
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("create the pods of round %d: %w", number, err)
	}
	return pods, nil
}

// ready has the pods become Ready.
func (w *world) ready(ctx context.Context, pods []*corev1.Pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writersAtOnce)
	now := metav1.Now()
	for i, pod := range pods {
		pod.Status.Phase, pod.Status.PodIP, pod.Status.StartTime = corev1.PodRunning, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), &now
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		g.Go(func() error { return w.kube.Status().Update(ctx, pod) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("have the pods become ready: %w", err)
	}
	return nil
}

// clear removes the group and the pods.
func (w *world) clear(ctx context.Context, group *v1alpha1.ConsumerGroup, pods []*corev1.Pod) error {
	if err := w.kube.Delete(ctx, group); err != nil {
		return fmt.Errorf("delete the ConsumerGroup: %w", err)
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(writersAtOnce)
	for _, pod := range pods {
		g.Go(func() error { return w.kube.Delete(inner, pod, kube.GracePeriodSeconds(0)) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("delete the pods: %w", err)
	}
	return nil
}
