package deploycheck

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS reads the server's configuration as the server does, in a new folder dir. acl is
// the text of acl.conf, which the user makes. The error joins what does not fit the
// objects around it.
func (c *Cluster) NATS(dir, acl string) error {
	c.faults = nil
	config, w := c.generated("nats-config"), c.workload("StatefulSet", "nats")
	if config == nil || w == nil {
		return errors.New("no nats-config or no StatefulSet nats is here")
	}
	tls := filepath.Join(dir, "tls")
	if err := certificate(tls); err != nil {
		return err
	}
	for name, text := range config.Data {
		for _, file := range regexp.MustCompile(`/etc/nats-tls/[a-z.]+`).FindAllString(text, -1) {
			if !w.shows(w.template.Spec.Containers[0], file) {
				c.fault("%s names %s, where nothing is mounted", name, file)
			}
		}
		text = strings.ReplaceAll(text, "/etc/nats-tls", tls)
		text = strings.ReplaceAll(text, "$POD_NAME", w.name+"-0")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "acl.conf"), []byte(acl), 0o600); err != nil {
		return err
	}
	o, err := readNATS(filepath.Join(dir, "nats.conf"))
	if err != nil {
		return err
	}
	c.checkServer(w, o)
	return errors.Join(c.faults...)
}

// readNATS reads a server's configuration; an unknown field is an error.
func readNATS(file string) (*server.Options, error) {
	o := &server.Options{CheckConfig: true}
	if err := o.ProcessConfigFile(file); err != nil {
		return nil, fmt.Errorf("NATS configuration: %w", err)
	}
	if !o.JetStream || o.StoreDir == "" || o.JetStreamMaxMemory == 0 {
		return nil, errors.New("NATS configuration: want JetStream with a store_dir and a max_memory_store")
	}
	// A connection that is gone must be noticed within a lease of 15 s.
	if silent := o.PingInterval * time.Duration(o.MaxPingsOut+1); silent <= 0 || silent > 15*time.Second {
		return nil, fmt.Errorf("NATS configuration: a dead connection is noticed after %v, a lease lasts 15 s", silent)
	}
	return o, nil
}

// checkServer holds the options to the StatefulSet: ports, memory, peers.
func (c *Cluster) checkServer(w *workload, o *server.Options) {
	for what, port := range map[string]int{"listen": o.Port, "http": o.HTTPPort} {
		if !w.opens("", int32(port)) {
			c.fault("nats.conf: %s: port %d is not open", what, port)
		}
	}
	limit := w.template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if o.JetStreamMaxMemory > limit*3/4 {
		c.fault("nats.conf: JetStream may have %d bytes of memory, the container %d", o.JetStreamMaxMemory, limit)
	}
	if grace := w.template.Spec.TerminationGracePeriodSeconds; grace != nil && o.LameDuckDuration > time.Duration(*grace)*time.Second {
		c.fault("nats.conf: a lame duck lives for %v, its pod is killed after %d s", o.LameDuckDuration, *grace)
	}
	if w.replicas == nil {
		return
	}
	if n := len(o.Routes); n > 0 && n != int(*w.replicas) || n == 0 && *w.replicas != 1 {
		c.fault("cluster.conf names %d servers, the StatefulSet nats has %d", n, *w.replicas)
	}
	for _, route := range o.Routes {
		if !c.reaches(route.Hostname(), ordinal(route.Port())) {
			c.fault("cluster.conf: nobody answers at %s", route.Host)
		}
	}
	gateway := c.workload("StatefulSet", "gateway")
	if want := fmt.Sprintf("queue.replicas=%d", *w.replicas); *w.replicas > 1 && (gateway == nil || !strings.Contains(strings.Join(gateway.template.Spec.Containers[0].Args, " "), want)) {
		c.fault("there are %d NATS servers and no %s: tickets lie on one of them", *w.replicas, want)
	}
}

// certificate writes tls.crt, tls.key and ca.crt, signed by itself, into dir.
func certificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"nats"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	for name, data := range map[string][]byte{
		"tls.crt": crt, "ca.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
