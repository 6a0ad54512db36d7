package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Server holds the settings of the section server.
type Server struct {
	Listen    string
	TokenFile string
	TLSCert   string
	TLSKey    string
	ClientCA  string
	BodyBytes int64
}

// defaultServer has the default of every setting.
func defaultServer() Server {
	return Server{Listen: "127.0.0.1:8080", BodyBytes: 128 << 20}
}

// section is the table of the settings of server.
func (s *Server) section() section {
	return section{
		name: "server", doc: "The HTTP edge and the websocket.",
		settings: []setting{
			text("listen", &s.Listen, "Address and port. One that others can reach needs token_file."),
			text("token_file", &s.TokenFile, "File with the token that clients send as Authorization: Bearer, or with several in lines of name:token. It is read again when it changes."),
			text("tls_cert", &s.TLSCert, "Certificate file (PEM); with tls_key."),
			text("tls_key", &s.TLSKey, "Private key file (PEM); with tls_cert."),
			text("client_ca", &s.ClientCA, "Only clients with a certificate signed by this CA file (PEM); with tls_cert."),
			size("body_bytes", &s.BodyBytes, 1<<10, "The largest HTTP request body."),
		},
	}
}

func (r *reader) server(s Server) {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		given, missing := "tls_cert", "tls_key"
		if s.TLSCert == "" {
			given, missing = missing, given
		}
		r.faultAt("server."+given, "needs server.%s beside it", missing)
	}
	if s.ClientCA != "" && s.TLSCert == "" {
		r.faultAt("server.client_ca", "needs server.tls_cert and server.tls_key: certificates of clients are checked within TLS")
	}
	public, problem := publicAddress(s.Listen)
	switch {
	case problem != "":
		r.faultAt("server.listen", "%s", problem)
	case public && s.TokenFile == "":
		r.faultAt("server.listen", "%s can be reached from other machines: write server.token_file, or listen on 127.0.0.1", s.Listen)
	case public && s.TLSCert == "":
		r.noteAt(r.places["server.listen"], "server.listen", "without server.tls_cert the token crosses the network in clear")
	}
}

// publicAddress reports whether other machines may reach an address. A name that
// is not localhost counts as public: what it means is another machine's choice.
func publicAddress(listen string) (public bool, problem string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return false, fmt.Sprintf("want an address and a port such as 127.0.0.1:8080, got %q", shorten(listen))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Sprintf("want a port of 0…65535, got %q", shorten(port))
	}
	if strings.EqualFold(host, "localhost") {
		return false, ""
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.IsLoopback(), ""
}
