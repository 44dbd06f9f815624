// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is the source of metadata of a broker that runs in Kubernetes: it watches the BrokerCluster, Topics and
// ConsumerGroups of its namespace, and makes, grows and deletes Topic resources when a Kafka client asks for it.
//
// The last known metadata is kept on disk, so that a broker that starts while the API server is away serves what it knew.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// Options say which cluster a broker belongs to.
type Options struct {
	// Config is how to reach the API server.
	Config *rest.Config
	// Namespace and Cluster name the BrokerCluster.
	Namespace string
	Cluster   string
	// CacheFile is where the last known metadata is kept.
	CacheFile string
	// Logger takes one line for each trouble with the API server. Default: slog.Default.
	Logger *slog.Logger
}

// Metadata is what the resources of a namespace say. Its methods may be called from several goroutines.
type Metadata struct {
	opts      Options
	client    rest.Interface
	clusters  cache.SharedIndexInformer
	topics    cache.SharedIndexInformer
	groups    cache.SharedIndexInformer
	dirty     chan struct{}
	lastError time.Time

	mu       sync.Mutex
	current  *metadata.Snapshot
	changed  chan struct{}
	finals   map[metadata.TopicID]bool
	resource map[string]string
}

// Open starts to watch, and stops when ctx ends. It does not wait for the API server: until the first answer, Snapshot is what the cache file
// holds, or empty if there is none.
func Open(ctx context.Context, opts Options) (*Metadata, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	client, err := restClient(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("make an API client: %w", err)
	}
	m := &Metadata{
		opts:     opts,
		client:   client,
		dirty:    make(chan struct{}, 1),
		current:  &metadata.Snapshot{},
		changed:  make(chan struct{}),
		finals:   map[metadata.TopicID]bool{},
		resource: map[string]string{},
	}
	switch cached, err := load(opts.CacheFile); {
	case err == nil:
		m.current = cached
	case !errors.Is(err, fs.ErrNotExist):
		opts.Logger.Warn("ignoring the metadata kept on disk", "error", err)
	}
	if err := m.watch(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

func restClient(c *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	gv := v1alpha1.GroupVersion
	c.GroupVersion = &gv
	c.APIPath = "/apis"
	c.ContentType = runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(c)
}

// watch starts one informer for each resource, and a goroutine that translates what they have whenever it changed.
func (m *Metadata) watch(ctx context.Context) error {
	informer := func(resource string, example runtime.Object, selector fields.Selector) (cache.SharedIndexInformer, error) {
		lw := cache.NewListWatchFromClient(m.client, resource, m.opts.Namespace, selector)
		i := cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
		if err := i.SetWatchErrorHandlerWithContext(m.watchFailed); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { m.touch() },
			UpdateFunc: func(any, any) { m.touch() },
			DeleteFunc: m.deleted,
		})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		return i, nil
	}
	var err error
	if m.clusters, err = informer("brokerclusters", &v1alpha1.BrokerCluster{}, fields.OneTermEqualSelector(metav1.ObjectNameField, m.opts.Cluster)); err != nil {
		return err
	}
	if m.topics, err = informer("topics", &v1alpha1.Topic{}, fields.Everything()); err != nil {
		return err
	}
	if m.groups, err = informer("consumergroups", &v1alpha1.ConsumerGroup{}, fields.Everything()); err != nil {
		return err
	}
	for _, i := range []cache.SharedIndexInformer{m.clusters, m.topics, m.groups} {
		go i.RunWithContext(ctx)
	}
	go m.run(ctx)
	return nil
}

// watchFailed logs that the API server does not answer, once in ten seconds at most: the informers try again with backoff.
func (m *Metadata) watchFailed(_ context.Context, _ *cache.Reflector, err error) {
	m.mu.Lock()
	quiet := time.Since(m.lastError) < 10*time.Second
	if !quiet {
		m.lastError = time.Now()
	}
	m.mu.Unlock()
	if !quiet {
		m.opts.Logger.Warn("cannot watch the cluster's resources; serving what is known", "error", err)
	}
}

func (m *Metadata) touch() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// deleted keeps what a deleted Topic said last of its records: the change of its policy and its deletion may come so close together that no
// snapshot is made between them.
func (m *Metadata) deleted(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if t, ok := obj.(*v1alpha1.Topic); ok {
		m.mu.Lock()
		m.finals[topicID(t.UID)] = t.Spec.DeletionPolicy == v1alpha1.DeletionDelete
		m.mu.Unlock()
	}
	m.touch()
}

func (m *Metadata) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), m.clusters.HasSynced, m.topics.HasSynced, m.groups.HasSynced) {
		return
	}
	for {
		m.rebuild()
		select {
		case <-ctx.Done():
			return
		case <-m.dirty:
		}
	}
}

// rebuild makes a snapshot of what the informers have, and publishes it if it differs from the last.
func (m *Metadata) rebuild() {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.facts()
	next := snapshotOf(m.opts.Cluster, f)
	next.Purge = purgeAfter(m.current, f, m.finals)
	clear(m.finals)
	clear(m.resource)
	for _, t := range f.topics {
		if topic := next.Topics[t.KafkaName()]; topic != nil && topic.ID == topicID(t.UID) {
			m.resource[topic.Name] = t.Name
		}
	}
	if f.cluster == nil {
		// The BrokerCluster is being deleted, or its watch is behind: what is known of the brokers stands.
		next.ClusterID, next.Brokers = m.current.ClusterID, m.current.Brokers
	}
	if !reflect.DeepEqual(next, m.current) {
		m.publish(next)
	}
}

// publish makes next the current snapshot. The caller holds m.mu.
func (m *Metadata) publish(next *metadata.Snapshot) {
	if err := save(m.opts.CacheFile, next); err != nil {
		m.opts.Logger.Warn("cannot keep the metadata on disk", "error", err)
	}
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Metadata) facts() facts {
	var f facts
	for _, o := range m.clusters.GetStore().List() {
		if c, ok := o.(*v1alpha1.BrokerCluster); ok {
			f.cluster = c
		}
	}
	for _, o := range m.topics.GetStore().List() {
		if t, ok := o.(*v1alpha1.Topic); ok {
			f.topics = append(f.topics, t)
		}
	}
	for _, o := range m.groups.GetStore().List() {
		if g, ok := o.(*v1alpha1.ConsumerGroup); ok {
			f.groups = append(f.groups, g)
		}
	}
	return f
}

// Snapshot returns what is known now.
func (m *Metadata) Snapshot() *metadata.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// Changed returns a channel that is closed when the next snapshot is there. Take it before Snapshot.
func (m *Metadata) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Purged says that the records of these incarnations are gone. It returns when that is on disk.
func (m *Metadata) Purged(_ context.Context, gone []metadata.Incarnation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.current
	next.Purge = without(m.current.Purge, gone)
	if len(next.Purge) == len(m.current.Purge) {
		return nil
	}
	if err := save(m.opts.CacheFile, &next); err != nil {
		return fmt.Errorf("keep the metadata on disk: %w", err)
	}
	m.publish(&next)
	return nil
}

func without(all, gone []metadata.Incarnation) []metadata.Incarnation {
	var out []metadata.Incarnation
	for _, i := range all {
		found := false
		for _, g := range gone {
			found = found || g == i
		}
		if !found {
			out = append(out, i)
		}
	}
	return out
}
