package acl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

// lifetime of the authority and of what it signs. A lab's certificate that ends in the
// middle of a training run does more harm than one that ends late.
const lifetimeYears = 10

// backdate is how far clocks of machines may be apart.
const backdate = time.Hour

// tlsFiles makes a small authority, a certificate for servers on hosts and, if asked,
// one for each role.
func tlsFiles(hosts []string, clients bool, now time.Time) ([]File, error) {
	ca, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	files := []File{
		{Name: "ca.pem", Mode: public, For: "the authority; every machine trusts it (tls_ca)", data: certificatePEM(ca.cert.Raw)},
		{Name: "ca-key.pem", Mode: private, For: "signs certificates; needed only for new ones: keep it off the servers", data: ca.keyPEM},
	}
	// A member of a cluster is a client of the others too.
	server, err := ca.sign("server", "rewardloop server", hosts, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	files = append(files, server...)
	if !clients {
		return files, nil
	}
	for _, role := range Roles() {
		client, err := ca.sign(string(role), "rewardloop "+string(role), nil, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return nil, err
		}
		files = append(files, client...)
	}
	return files, nil
}

// authority signs certificates.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	keyPEM []byte
}

func newAuthority(now time.Time) (*authority, error) {
	key, keyPEM, err := newTLSKey()
	if err != nil {
		return nil, err
	}
	template, err := certificateTemplate("rewardloop", now.Add(-backdate), now.AddDate(lifetimeYears, 0, 0))
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("acl: certificate of the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("acl: certificate of the authority: %w", err)
	}
	return &authority{cert, key, keyPEM}, nil
}

// sign makes name.pem and name-key.pem. The certificate ends with the authority's.
func (a *authority) sign(name, subject string, hosts []string, usage ...x509.ExtKeyUsage) ([]File, error) {
	key, keyPEM, err := newTLSKey()
	if err != nil {
		return nil, err
	}
	template, err := certificateTemplate(subject, a.cert.NotBefore, a.cert.NotAfter)
	if err != nil {
		return nil, err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, usage
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("acl: certificate %s.pem: %w", name, err)
	}
	what := "the certificate that " + name + "s show a server"
	if len(hosts) > 0 {
		what = "the server's certificate, for " + list(hosts)
	}
	return []File{
		{Name: name + ".pem", Mode: public, For: what, data: certificatePEM(der)},
		{Name: name + "-key.pem", Mode: private, For: "its secret key", data: keyPEM},
	}, nil
}

// certificateTemplate has a random serial number of 127 bits.
func certificateTemplate(name string, from, until time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("acl: serial number: %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until}, nil
}

func newTLSKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("acl: making a TLS key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("acl: making a TLS key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// list names the first few.
func list(names []string) string {
	const most = 4
	shown := slices.Clone(names[:min(len(names), most)])
	if len(names) > most {
		shown = append(shown, fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(shown, ", ")
}
