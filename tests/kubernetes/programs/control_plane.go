// Run one program of a Kubernetes control plane: the first argument is its name, the others are its flags.
//
// One binary has all of them, because they share most of their packages: linked apart, they take four times the disk.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func command(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fail("no program given")
	}
	os.Args = os.Args[1:]
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	program := command(name)
	if program == nil {
		fail("no program " + name)
	}
	os.Exit(cli.Run(program))
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason+"; there are etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl")
	os.Exit(2)
}
