// SPDX-License-Identifier: Apache-2.0

// Package admission_test asks a real API server what it says to right and wrong resources: the schemas and CEL rules of
// api/v1alpha1, one by one.
package admission_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

var (
	env *testenv.Env
	ns  string
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = testenv.Start(GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	ns, err = env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

// admission is a kind and the name that its objects have in a test unless their manifest names them.
type admission struct{ kind, name string }

// object parses a spec, in YAML, or a whole object where it has metadata.
func (a admission) object(manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	fields := map[string]any{}
	Expect(yaml.Unmarshal([]byte(manifest), &fields)).To(Succeed())
	if _, whole := fields["metadata"]; !whole {
		fields = map[string]any{"spec": fields}
	}
	obj := &unstructured.Unstructured{Object: fields}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: a.kind})
	obj.SetNamespace(ns)
	if obj.GetName() == "" && obj.GetGenerateName() == "" {
		obj.SetName(a.name)
	}
	return obj
}

// create asks what the API server says to the object.
func (a admission) create(ctx context.Context, manifest string) (*unstructured.Unstructured, error) {
	GinkgoHelper()
	obj := a.object(manifest)
	err := env.Client.Create(ctx, obj, client.DryRunAll, client.FieldValidation("Strict"))
	return obj, err
}

// update asks what the API server says to a change from one object to another.
func (a admission) update(ctx context.Context, from, to string) error {
	GinkgoHelper()
	obj := a.object(from)
	Expect(env.Client.Create(ctx, obj, client.FieldValidation("Strict"))).To(Succeed())
	defer func() { Expect(env.Client.Delete(ctx, obj)).To(Succeed()) }()
	next := a.object(to)
	next.SetResourceVersion(obj.GetResourceVersion())
	return env.Client.Update(ctx, next, client.DryRunAll, client.FieldValidation("Strict"))
}

// accepts is the body of a table of manifests that are right.
func (a admission) accepts() func(ctx SpecContext, manifest string) {
	return func(ctx SpecContext, manifest string) {
		_, err := a.create(ctx, manifest)
		Expect(err).NotTo(HaveOccurred())
	}
}

// refuses is the body of a table of manifests that are wrong, each with what the API server says.
func (a admission) refuses() func(ctx SpecContext, manifest, says string) {
	return func(ctx SpecContext, manifest, says string) {
		_, err := a.create(ctx, manifest)
		Expect(err).To(MatchError(ContainSubstring(says)))
	}
}

// acceptsChange is the body of a table of changes that are right.
func (a admission) acceptsChange() func(ctx SpecContext, from, to string) {
	return func(ctx SpecContext, from, to string) {
		Expect(a.update(ctx, from, to)).To(Succeed())
	}
}

// refusesChange is the body of a table of changes that are wrong, each with what the API server says.
func (a admission) refusesChange() func(ctx SpecContext, from, to, says string) {
	return func(ctx SpecContext, from, to, says string) {
		Expect(a.update(ctx, from, to)).To(MatchError(ContainSubstring(says)))
	}
}
