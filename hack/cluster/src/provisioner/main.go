// SPDX-License-Identifier: Apache-2.0

// Command provisioner gives each claim of the default storage class a world-writable host directory.
//
// All nodes of the local cluster share one machine, so a volume needs no node affinity: a pod finds its
// data again on whichever node it lands.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// hostDirs provisions volumes as folders below root, each named as its volume.
type hostDirs struct{ root string }

// Provision makes the folder of a new volume; its mode does not depend on the umask.
func (h hostDirs) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	dir := filepath.Join(h.root, o.PVName)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make volume directory: %w", err)
	}
	//nolint:gosec // a pod of any user may claim the volume, and nobody else can reach the folder
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("open volume directory to every user: %w", err)
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes a volume's folder with all that is in it.
func (h hostDirs) Delete(_ context.Context, pv *corev1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(h.root, pv.Name))
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	root := flag.String("root", "", "directory that holds the volumes")
	name := flag.String("name", "local.ringmaster.dev/directory", "provisioner name, as in the storage class")
	flag.Parse()
	if err := run(*kubeconfig, *root, *name); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, root, name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	controller.NewProvisionController(ctx, client, name, hostDirs{root}, controller.LeaderElection(false)).Run(ctx)
	return nil
}
