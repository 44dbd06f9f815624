// SPDX-License-Identifier: Apache-2.0

// Package testenv gives the controllers' suites an API server of their own: a real kube-apiserver and etcd, with
// Ringmaster's CRDs installed from config/crd/bases. There are no other controllers in it: nothing runs pods, and nothing
// collects garbage.
//
// A suite starts one Env, makes a namespace for each spec, and runs its controllers with StartManager:
//
//	BeforeSuite:  env, err = testenv.Start(GinkgoWriter)
//	each spec:    ns, err := env.Namespace(ctx)
//	              m, err := env.StartManager(ns, setup); DeferCleanup(m.Stop)
//	AfterSuite:   env.Stop()
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// errNoAssets is what Start returns where the API server's programs are not to be found. A suite must fail with it, never skip.
var errNoAssets = errors.New("KUBEBUILDER_ASSETS must name a directory that holds etcd, kube-apiserver and kubectl; run `make test`, which sets it")

// startTimeout is how long a manager may take to fill its caches.
const startTimeout = 30 * time.Second

// Env is an API server with Ringmaster's CRDs.
type Env struct {
	// Config is a cluster administrator's.
	Config *rest.Config
	// Client reads from the API server itself, never from a cache.
	Client client.Client
	// Scheme knows Kubernetes' own types and Ringmaster's.
	Scheme *runtime.Scheme

	server *envtest.Environment
}

// Start starts an API server and installs the CRDs. The controllers' log goes to log. It fails if KUBEBUILDER_ASSETS is not
// set or lacks a program.
func Start(log io.Writer) (*Env, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return nil, errNoAssets
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(assets, program)); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoAssets, err)
		}
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	no := false
	e := &Env{Scheme: scheme, server: &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		BinaryAssetsDirectory:    assets,
		UseExistingCluster:       &no,
		ControlPlaneStartTimeout: 2 * time.Minute, // several suites may start at once on few cores
		ControlPlaneStopTimeout:  time.Minute,
	}}
	if e.Config, err = e.server.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), e.server.Stop())
	}
	if e.Client, err = client.New(e.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(fmt.Errorf("make a client: %w", err), e.server.Stop())
	}
	return e, nil
}

// Stop stops the API server. It does nothing to a nil Env, so that a suite can call it whether Start succeeded or not.
func (e *Env) Stop() error {
	if e == nil || e.server == nil {
		return nil
	}
	return e.server.Stop()
}

// Namespace makes a namespace of a name that was never used before.
func (e *Env) Namespace(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	return ns.Name, nil
}

// As returns the Env as a user sees it who has no rights but those that are granted to the name. Only the Env itself can be stopped.
func (e *Env) As(name string) (*Env, error) {
	user, err := e.server.AddUser(envtest.User{Name: name}, nil)
	if err != nil {
		return nil, fmt.Errorf("add user %s: %w", name, err)
	}
	c, err := client.New(user.Config(), client.Options{Scheme: e.Scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of user %s: %w", name, err)
	}
	return &Env{Config: user.Config(), Client: c, Scheme: e.Scheme}, nil
}

// Notes returns the events of a reason on an object, as "Normal: note", for a spec to wait for.
func (e *Env) Notes(ctx context.Context, namespace, name, reason string) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		if err := e.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.Name == name && event.Reason == reason {
				notes = append(notes, event.Type+": "+event.Note)
			}
		}
		return notes, nil
	}
}

// Manager is a running controller manager whose writes are recorded.
type Manager struct {
	writes *recorder
	cancel context.CancelFunc
	done   chan error
}

// StartManager runs a manager for one namespace ("" for all) and waits until its caches are filled. setup adds the
// controllers to it; each of options may change how the manager is made. Nothing of it listens on a port, and there is no
// leader election.
func (e *Env) StartManager(namespace string, setup func(ctrl.Manager) error, options ...func(*ctrl.Options)) (*Manager, error) {
	m := &Manager{writes: &recorder{grown: make(chan struct{}, 1)}, done: make(chan error, 1)}
	cfg := rest.CopyConfig(e.Config)
	cfg.QPS = -1
	cfg.Wrap(m.writes.wrap)

	yes := true
	opts := ctrl.Options{
		Scheme:     e.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &yes},
	}
	if namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	for _, option := range options {
		option(&opts)
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}
	if err := setup(mgr); err != nil {
		return nil, fmt.Errorf("set up the controllers: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() { m.done <- mgr.Start(ctx) }()
	synced := make(chan bool, 1)
	go func() {
		select {
		case <-mgr.Elected():
			synced <- mgr.GetCache().WaitForCacheSync(ctx)
		case <-ctx.Done():
		}
	}()
	select {
	case <-synced:
		return m, nil
	case err := <-m.done:
		cancel()
		return nil, fmt.Errorf("run the manager: %w", err)
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("the manager's caches are not filled after %s; the API server refused %v", startTimeout, m.Refused()), m.Stop())
	}
}

// Stop stops the manager and waits for it. A second call does nothing.
func (m *Manager) Stop() error {
	m.cancel()
	err, ok := <-m.done
	if ok {
		close(m.done)
	}
	return err
}

// Writes returns the requests that the manager sent and that could change something, in order, as "PATCH /path?query".
// Events are left out.
func (m *Manager) Writes() []string { return m.writes.list() }

// Refused returns the requests that the API server refused for want of rights, as Writes writes them. Reads and events count.
func (m *Manager) Refused() []string { return m.writes.forbidden() }

// calm is how long a manager that has nothing more to do is silent: what a change sets off takes milliseconds.
const calm = 300 * time.Millisecond

// Settle waits until the manager has sent no write for a while, and returns how many it has sent in all. It gives up after 30 s.
func (m *Manager) Settle() (writes int, err error) {
	end := time.After(30 * time.Second)
	for {
		writes = len(m.Writes())
		select {
		case <-m.writes.grown:
		case <-time.After(calm):
			if len(m.Writes()) == writes {
				return writes, nil
			}
		case <-end:
			return writes, errors.New("the manager goes on writing: " + strings.Join(m.Writes()[max(0, writes-5):], ", "))
		}
	}
}

// moduleRoot is the nearest directory above the working directory that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the module's root: no go.mod in the working directory or above it")
		}
		dir = parent
	}
}
