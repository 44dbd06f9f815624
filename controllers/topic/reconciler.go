// SPDX-License-Identifier: Apache-2.0

// Package topic places a Topic's partitions on the brokers of its BrokerCluster.
//
// The status is all that it writes. A Topic has no finalizer: the brokers notice that it is gone and do what its
// deletionPolicy says.
package topic

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

// Reconciler reconciles Topics.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Recorder records events on Topics.
	Recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=ringmaster.dev,resources=topics,verbs=get;list;watch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=topics/status,verbs=patch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=brokerclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile gives the partitions of one Topic their leaders.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	topic := &v1alpha1.Topic{}
	if err := r.Client.Get(ctx, req.NamespacedName, topic); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if topic.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	f, err := r.gather(ctx, topic)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.setStatus(ctx, topic, decide(topic, f))
}

// gather reads the facts from the cache.
func (r *Reconciler) gather(ctx context.Context, t *v1alpha1.Topic) (facts, error) {
	clusters := &v1alpha1.BrokerClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(t.Namespace)); err != nil {
		return facts{}, fmt.Errorf("list BrokerClusters: %w", err)
	}
	namesakes := &v1alpha1.TopicList{}
	if err := r.Client.List(ctx, namesakes, client.InNamespace(t.Namespace), client.MatchingFields{indexKafkaName: t.KafkaName()}); err != nil {
		return facts{}, fmt.Errorf("list Topics named %s: %w", t.KafkaName(), err)
	}
	return facts{clusters: clusters.Items, namesakes: namesakes.Items}, nil
}

// setStatus writes the decision into the status, if that changes it, and records an event for what is new in it.
func (r *Reconciler) setStatus(ctx context.Context, t *v1alpha1.Topic, d decision) error {
	before := t.DeepCopy()
	t.Status = status(t, d)
	wrote, err := apply.Status(ctx, r.Client, t, before)
	if err != nil || !wrote {
		return err
	}
	is, was := ready(t), ready(before)
	if was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	kind := corev1.EventTypeNormal
	switch {
	case refusals[is.Reason]:
		kind = corev1.EventTypeWarning
	case is.Reason != v1alpha1.ReasonPlaced:
		return nil // that brokers are awaited is no news
	}
	r.Recorder.Eventf(t, nil, kind, is.Reason, actionPlace, "%s", apply.Note(is.Message))
	return nil
}

// topicID is the topic's id as Kafka clients see it: the 16 bytes of the resource's uid, as KIP-516 writes them.
func topicID(t *v1alpha1.Topic) string {
	id, err := hex.DecodeString(strings.ReplaceAll(string(t.UID), "-", ""))
	if err != nil || len(id) != 16 {
		return "" // the API server makes uids, and makes UUIDs
	}
	return base64.RawURLEncoding.EncodeToString(id)
}
