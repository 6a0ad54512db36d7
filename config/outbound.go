package config

// Outbound holds the settings of the section outbound.
type Outbound struct {
	// Allow are hosts, addresses and networks that may be asked although they are
	// this machine's own.
	Allow  []string
	Proxy  string
	CAFile string
}

// section is the table of the settings of outbound.
func (o *Outbound) section() section {
	return section{
		name: "outbound", doc: "What leaves this process by HTTP: engines, scorers on other servers, sandboxes.",
		settings: []setting{
			texts("allow", &o.Allow, "Hosts, addresses or networks, such as [10.0.0.7, judge.local], that may be asked although they "+
				"lead to this machine. What an address in this file names itself may be; link-local addresses never."),
			text("proxy", &o.Proxy, "Proxy for all of it, such as http://proxy:3128. The environment's is not used."),
			text("ca_file", &o.CAFile, "Certificates (PEM) that are trusted besides the system's."),
		},
	}
}
