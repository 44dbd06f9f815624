// SPDX-License-Identifier: Apache-2.0

// Package apply writes the operator's objects by server-side apply, and only those that differ from what is there: an
// unchanged world costs the API server nothing, not even an apply that changes nothing.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the name under which the operator owns the fields that it applies.
const FieldOwner = client.FieldOwner("ringmaster-operator")

// AnnotationApplied holds a digest of what the operator applied last. It tells when a field that the operator once set is
// to be given up, which cannot be seen in the fields themselves.
const AnnotationApplied = "ringmaster.dev/applied"

// Object brings the API server's object to what desired says, and tells whether that took a write. c reads from a cache. What
// others changed in the fields that desired sets is undone; fields that it does not set are theirs.
//
// desired must have its apiVersion, kind, name and namespace. An object of that name that someone else made is not taken
// over: the API server then reports a conflict.
func Object(ctx context.Context, c client.Client, desired client.Object) (bool, error) {
	what := desired.GetObjectKind().GroupVersionKind().Kind + " " + desired.GetName()
	fields, err := toFields(desired)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", what, err)
	}
	intent(fields)
	if err := sign(fields); err != nil {
		return false, fmt.Errorf("encode %s: %w", what, err)
	}
	live, err := get(ctx, c, desired)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", what, err)
	}
	opts := []client.ApplyOption{FieldOwner}
	if live != nil {
		if live.GetDeletionTimestamp() != nil {
			return false, nil // it is going; its end wakes the reconciler, which then makes it anew
		}
		liveFields, err := toFields(live)
		if err != nil {
			return false, fmt.Errorf("encode %s: %w", what, err)
		}
		if covers(liveFields, fields) {
			return false, nil
		}
		// What the cache shows is the operator's own, for it has its labels: its fields are taken back from whoever changed them.
		opts = append(opts, client.ForceOwnership)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields}), opts...); err != nil {
		return false, fmt.Errorf("apply %s: %w", what, err)
	}
	return true, nil
}

// Status writes obj's status if it differs from that of before, the object as it was read. It tells whether it wrote. The write is
// refused if the object has changed since it was read; that is no error, for the change wakes the reconciler again.
func Status(ctx context.Context, c client.Client, obj, before client.Object) (bool, error) {
	was, err := toFields(before)
	if err != nil {
		return false, fmt.Errorf("encode status: %w", err)
	}
	is, err := toFields(obj)
	if err != nil {
		return false, fmt.Errorf("encode status: %w", err)
	}
	if reflect.DeepEqual(was["status"], is["status"]) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err = c.Status().Patch(ctx, obj, patch, FieldOwner)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch status: %w", err)
	}
	return true, nil
}

// get reads the object of desired's name, nil if there is none.
func get(ctx context.Context, c client.Client, desired client.Object) (client.Object, error) {
	live, ok := reflect.New(reflect.TypeOf(desired).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", desired)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return live, nil
}

// sign adds the digest of the fields to them.
func sign(fields map[string]any) error {
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	return unstructured.SetNestedField(fields, hex.EncodeToString(sum[:16]), "metadata", "annotations", AnnotationApplied)
}

// toFields returns the fields that the object sets, as JSON would write them.
func toFields(obj client.Object) (map[string]any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	return fields, nil
}

// intent removes what an applied object must not claim: the status, and everything that is null.
func intent(fields map[string]any) {
	delete(fields, "status")
	dropNulls(fields)
}

func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
				continue
			}
			dropNulls(field)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}
