// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kubeconfig writes a kubeconfig for the API server at url, and returns its file's name.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, url)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kinds are the resources of each API that the operator asks for before it starts.
var kinds = map[string][]string{
	"v1":                           {"ConfigMap", "PersistentVolumeClaim", "Service", "ServiceAccount"},
	"policy/v1":                    {"PodDisruptionBudget"},
	"rbac.authorization.k8s.io/v1": {"Role", "RoleBinding"},
	"ringmaster.dev/v1alpha1":      {"BrokerCluster", "ConsumerGroup", "Topic"},
}

// apiServer serves the discovery of some APIs, and nothing else.
func apiServer(t *testing.T, apis ...string) *httptest.Server {
	t.Helper()
	answers := map[string]string{"/api": `{"kind": "APIVersions", "versions": ["v1"]}`}
	var groups []string
	for _, api := range apis {
		var resources []string
		for _, kind := range kinds[api] {
			resources = append(resources, fmt.Sprintf(`{"name": "%ss", "kind": %q, "namespaced": true, "verbs": ["get"]}`, strings.ToLower(kind), kind))
		}
		path := "/apis/" + api
		if group, version, ok := strings.Cut(api, "/"); ok {
			groups = append(groups, fmt.Sprintf(`{"name": %q, "versions": [{"groupVersion": %q, "version": %q}], "preferredVersion": {"groupVersion": %[2]q, "version": %[3]q}}`, group, api, version))
		} else {
			path = "/api/" + api
		}
		answers[path] = fmt.Sprintf(`{"kind": "APIResourceList", "groupVersion": %q, "resources": [%s]}`, api, strings.Join(resources, ", "))
	}
	answers["/apis"] = fmt.Sprintf(`{"kind": "APIGroupList", "groups": [%s]}`, strings.Join(groups, ", "))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestOperatorFailsInOneLine(t *testing.T) {
	bare, whole := apiServer(t, "v1"), apiServer(t, "v1", "policy/v1", "rbac.authorization.k8s.io/v1", "ringmaster.dev/v1alpha1")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()

	const ports = "--health-listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 --leader-election=false "
	tests := map[string]struct {
		args     string
		wantCode int
		want     string
	}{
		"no image": {
			"", exitUsage, `the operator needs the image of the brokers: give --broker-image, or set RINGMASTER_IMAGE; see "ringmaster operator --help"`,
		},
		"an address that is none": {
			"--broker-image=x --metrics-listen=8081", exitUsage, `--metrics-listen: "8081" is not HOST:PORT`,
		},
		"a flag that does not exist": {"--replicas=3", exitUsage, "unknown flag: --replicas"},
		"an argument":                {"--broker-image=x now", exitUsage, `takes no arguments, not "now"`},
		"a log level that is none":   {"--log-level=loud", exitUsage, "use debug, info, warn, error"},
		"nothing that says where the API server is": {
			"--broker-image=x " + ports, exitFailed, "cannot tell how to reach the API server",
		},
		"a kubeconfig that does not exist": {
			"--broker-image=x --kubeconfig=/nonexistent/config " + ports, exitFailed, "read kubeconfig /nonexistent/config",
		},
		"an API server that does not answer": {
			"--broker-image=x " + ports + "--kubeconfig=" + kubeconfig(t, closed.URL), exitFailed, "ask the API server at " + closed.URL,
		},
		"an API server without the resources": {
			"--broker-image=x " + ports + "--kubeconfig=" + kubeconfig(t, bare.URL), exitFailed,
			"does not know the resource BrokerCluster (ringmaster.dev/v1alpha1); install the custom resource definitions first",
		},
		"a metrics port that is in use": {
			"--broker-image=x " + ports + "--metrics-listen=" + strings.TrimPrefix(whole.URL, "http://") + " --kubeconfig=" + kubeconfig(t, whole.URL),
			exitFailed, "the address is in use",
		},
		"one port for both": {
			"--broker-image=x --health-listen=127.0.0.1:18080 --metrics-listen=127.0.0.1:18080 --kubeconfig=" + kubeconfig(t, whole.URL),
			exitFailed, "the address is in use",
		},
		"a health port that is in use": {
			"--broker-image=x " + ports + "--health-listen=" + strings.TrimPrefix(whole.URL, "http://") + " --kubeconfig=" + kubeconfig(t, whole.URL),
			exitFailed, "the address is in use",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, env := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", envImage} {
				t.Setenv(env, "")
			}
			var out, errs bytes.Buffer
			code := run(context.Background(), append([]string{"operator"}, strings.Fields(tc.args)...), streams{in: strings.NewReader(""), out: &out, err: &errs})
			if code != tc.wantCode || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("exit code %d, %q; want %d, %q", code, errs.String(), tc.wantCode, tc.want)
			}
			if lines := strings.Count(errs.String(), "\n"); lines != 1 || out.Len() > 0 {
				t.Errorf("%d lines of error and %q, want one line and nothing:\n%s", lines, out.String(), errs.String())
			}
		})
	}
}

func TestOperatorWaitsForAnAPIServerThatIsAway(t *testing.T) {
	for _, env := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", envImage} {
		t.Setenv(env, "")
	}
	bare := apiServer(t, "v1")
	address := bare.Listener.Addr().String()
	handler := bare.Config.Handler
	bare.Close()

	errs, done := newWatched(), make(chan int, 1)
	args := []string{
		"operator", "--broker-image=x", "--health-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--leader-election=false",
		"--wait-for-api-server=1m", "--kubeconfig=" + kubeconfig(t, bare.URL),
	}
	go func() {
		done <- run(context.Background(), args, streams{in: strings.NewReader(""), out: io.Discard, err: errs})
	}()
	errs.await(t, "the API server does not answer; trying again")

	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	late := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
	late.Start()
	t.Cleanup(late.Close)
	errs.await(t, "install the custom resource definitions first") // it was asked, and what it said ends the wait
	if code := <-done; code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

func TestOperatorTakesTheImageFromTheEnvironment(t *testing.T) {
	t.Setenv(envImage, "registry.example/ringmaster:1")
	f := &operatorFlags{healthListen: ":8080", metricsListen: ":8081"}
	if err := f.check(); err != nil || f.brokerImage != "registry.example/ringmaster:1" {
		t.Errorf("image %q, %v", f.brokerImage, err)
	}
	f.brokerImage = "mine"
	if err := f.check(); err != nil || f.brokerImage != "mine" {
		t.Errorf("image %q, %v; a flag comes before the environment", f.brokerImage, err)
	}
}
