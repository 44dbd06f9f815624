// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/brokercluster"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
	"github.com/ringmaster-dev/ringmaster/controllers/topic"
)

const (
	// operatorName is the operator's name in events and in the API server's log, and that of its leader election's Lease.
	operatorName = "ringmaster-operator"
	// envImage names the environment variable that holds the brokers' image: usually the operator's own.
	envImage = "RINGMASTER_IMAGE"
)

// operatorFlags are the flags of "operator".
type operatorFlags struct {
	brokerImage    string
	namespace      string
	kubeconfig     string
	leaderElection bool
	leaseNamespace string
	healthListen   string
	metricsListen  string
	apiServerWait  time.Duration
	logLevel       *enum
	logFormat      *enum
}

func newOperatorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator",
		Long: `Run the operator until SIGTERM or SIGINT. It makes brokers for BrokerClusters, places the partitions of Topics on them, and decides which
pod of a ConsumerGroup reads which partitions. Brokers and consumers go on without it.

Several may run: the one that holds the Lease ` + operatorName + ` works, the others wait for it to stop.

--health-listen serves /healthz (200 while the process lives) and /readyz (200 once it works or waits for the Lease), --metrics-listen
serves /metrics for Prometheus.`,
		Example: `  ringmaster operator --broker-image registry.example.com/ringmaster:1.0.0
  ringmaster operator --namespace shop --leader-election=false --kubeconfig ~/.kube/config --broker-image ringmaster:dev`,
		Args: nothing,
	}
	f := &operatorFlags{logLevel: newEnum("info", "debug", "info", "warn", "error"), logFormat: newEnum("text", "text", "json")}
	flags := cmd.Flags()
	flags.StringVar(&f.brokerImage, "broker-image", "", "the `IMAGE` of brokers whose BrokerCluster names none (default: $"+envImage+")")
	flags.StringVar(&f.namespace, "namespace", "", "the one `NAMESPACE` to watch (default: all)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the `FILE` that says how to reach the API server (default: $KUBECONFIG, else the pod's service account)")
	flags.BoolVar(&f.leaderElection, "leader-election", true, "work only while holding the Lease, so that several operators may run")
	flags.StringVar(&f.leaseNamespace, "leader-election-namespace", "", "the `NAMESPACE` of the Lease (default: the one of the service account or kubeconfig)")
	flags.StringVar(&f.healthListen, "health-listen", ":8080", "the `HOST:PORT` to serve /healthz and /readyz on")
	flags.StringVar(&f.metricsListen, "metrics-listen", ":8081", "the `HOST:PORT` to serve /metrics on")
	flags.DurationVar(&f.apiServerWait, "wait-for-api-server", 0, "how long to try again at the start while the API server does not answer")
	addEnum(cmd, f.logLevel, "log-level", "", "the least level that is logged")
	addEnum(cmd, f.logFormat, "log-format", "", "how log lines are written, to standard error")
	noFiles(cmd, "wait-for-api-server", "broker-image", "namespace", "leader-election-namespace", "health-listen", "metrics-listen")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.run(cmd.Context(), newLogger(cmd.ErrOrStderr(), f.logLevel.value, f.logFormat.value))
	})
	return cmd
}

// check checks the flags, and fills in what the environment says.
func (f *operatorFlags) check() error {
	if f.brokerImage == "" {
		f.brokerImage = os.Getenv(envImage)
	}
	if f.brokerImage == "" {
		return usagef("the operator needs the image of the brokers: give --broker-image, or set %s", envImage)
	}
	for flag, value := range map[string]string{"health-listen": f.healthListen, "metrics-listen": f.metricsListen} {
		if _, _, err := parseHostPort(value); err != nil {
			return usagef("--%s: %v", flag, err)
		}
	}
	return nil
}

// run runs the operator until ctx ends.
func (f *operatorFlags) run(ctx context.Context, log *slog.Logger) error {
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	config, own, err := (&kubernetesFlags{kubeconfig: f.kubeconfig, namespace: f.leaseNamespace}).config()
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server has its own fair queues
	config.UserAgent = operatorName + "/" + version
	if err := f.portsAreFree(ctx); err != nil {
		return err
	}
	if err := f.awaitAPIServer(ctx, config, log); err != nil {
		return err
	}
	mgr, err := f.manager(config, own)
	if err != nil {
		return err
	}
	if err := f.addControllers(mgr); err != nil {
		return err
	}
	if err := addChecks(mgr); err != nil {
		return err
	}
	watched := f.namespace
	if watched == "" {
		watched = "(all)"
	}
	log.Info(operatorName, "version", version, "apiServer", config.Host, "namespace", watched, "brokerImage", f.brokerImage)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the operator: %w", err)
	}
	log.Info(operatorName + " stopped")
	return nil
}

// portsAreFree tells early and in one line what would otherwise come late, among the log lines of a manager that is under way.
func (f *operatorFlags) portsAreFree(ctx context.Context) error {
	health, err := listen(ctx, "health-listen", f.healthListen)
	if err != nil {
		return err
	}
	defer closeQuietly(health)
	metrics, err := listen(ctx, "metrics-listen", f.metricsListen)
	if err != nil {
		return err
	}
	closeQuietly(metrics)
	return nil
}

// manager makes the controllers' manager; own is the namespace of its Lease.
func (f *operatorFlags) manager(config *rest.Config, own string) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	children, err := brokercluster.CacheByObject()
	if err != nil {
		return nil, err
	}
	opts := ctrl.Options{
		Scheme: scheme,
		// Managed fields are half of what an object weighs, and no controller reads them.
		Cache:                   cache.Options{ByObject: children, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 metricsserver.Options{BindAddress: f.metricsListen},
		HealthProbeBindAddress:  f.healthListen,
		LeaderElection:          f.leaderElection,
		LeaderElectionID:        operatorName,
		LeaderElectionNamespace: own,
		// The process ends with the manager, so the next operator need not wait until the Lease runs out.
		LeaderElectionReleaseOnCancel: true,
	}
	if f.namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{f.namespace: {}}
	}
	mgr, err := ctrl.NewManager(config, opts)
	if err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	return mgr, nil
}

// awaitAPIServer waits until the API server answers that it knows the resources, as long as the flags say. One that answers otherwise is an error at
// once: waiting does not mend it.
func (f *operatorFlags) awaitAPIServer(ctx context.Context, config *rest.Config, log *slog.Logger) error {
	end := time.Now().Add(f.apiServerWait)
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		err := knowsResources(config)
		var unreachable net.Error
		if err == nil || !errors.As(err, &unreachable) || time.Now().Add(pause).After(end) {
			return err
		}
		log.Warn("the API server does not answer; trying again", "after", pause.String(), "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// knowsResources asks the API server for the three resources, so that one that cannot be reached or lacks them is an error
// now rather than a controller that waits.
func knowsResources(config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server at %s: %w", config.Host, err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return fmt.Errorf("ask the API server at %s: %w", config.Host, err)
	}
	for _, kind := range []string{"BrokerCluster", "ConsumerGroup", "Topic"} {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind}, v1alpha1.GroupVersion.Version)
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the API server at %s does not know the resource %s (%s); install the custom resource definitions first: the Helm chart has them, and config/crd/bases",
				config.Host, kind, v1alpha1.GroupVersion)
		}
		if err != nil {
			return fmt.Errorf("ask the API server at %s: %w", config.Host, err)
		}
	}
	return nil
}

func (f *operatorFlags) addControllers(mgr ctrl.Manager) error {
	recorder := mgr.GetEventRecorder(operatorName)
	observer := consumergroup.NewObserver(mgr, recorder)
	for _, controller := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&brokercluster.Reconciler{Client: mgr.GetClient(), Recorder: recorder, BrokerImage: f.brokerImage},
		&topic.Reconciler{Client: mgr.GetClient(), Recorder: recorder},
		&consumergroup.Reconciler{Client: mgr.GetClient(), Recorder: recorder, Observer: observer},
		observer,
	} {
		if err := controller.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return nil
}

// addChecks adds what /healthz and /readyz say.
func addChecks(mgr ctrl.Manager) error {
	r := &readiness{}
	if err := errors.Join(mgr.Add(r), mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("started", r.check)); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	return nil
}

// readiness is ready once the manager has started, whether it is the leader or waits to be.
type readiness struct{ started atomic.Bool }

var _ manager.LeaderElectionRunnable = (*readiness)(nil)

// Start notes that the manager has started.
func (r *readiness) Start(context.Context) error {
	r.started.Store(true)
	return nil
}

// NeedLeaderElection says that Start is called without the Lease, too.
func (*readiness) NeedLeaderElection() bool { return false }

func (r *readiness) check(*http.Request) error {
	if !r.started.Load() {
		return errors.New("the operator is starting")
	}
	return nil
}
