// CoreDNS with only the plugins that cluster DNS needs. The full CoreDNS imports every cloud's
// SDK for its other plugins and takes four times as long to build.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() { coremain.Run() }
