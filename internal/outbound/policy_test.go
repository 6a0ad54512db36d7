package outbound_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAddressesThatNothingAllows(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{
		"169.254.169.254", "169.254.0.1", "169.254.255.255", "::ffff:169.254.169.254", "::169.254.169.254",
		"64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fe80::1", "fe80::1%eth0", "febf::1",
		"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "::ffff:100.100.100.200", "168.63.129.16",
		"0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "224.0.0.1", "239.1.2.3", "::ffff:224.0.0.1", "ff02::1", "255.255.255.255",
	} {
		err := outbound.CheckAddress([]string{"0.0.0.0/0", "::/0", "scorer"}, "scorer", ip)
		require.ErrorContains(t, err, "is not allowed", ip)
	}
}

func TestPublicAndPrivateAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "::ffff:10.1.2.3",
		"fd00::1", "2001:db8::1", "169.253.255.255", "169.255.0.0", "64:ff9b::808:808", "fec0::1",
	} {
		require.NoError(t, outbound.CheckAddress(nil, "scorer", ip), ip)
	}
}

func TestLoopbackMustBeListedOrWrittenInTheURL(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"} {
		require.ErrorContains(t, outbound.CheckAddress(nil, "scorer", ip), "loopback", ip)
		require.ErrorContains(t, outbound.CheckAddress([]string{"other", "127.1.0.0/16"}, "scorer", ip), "loopback", ip)
		require.ErrorContains(t, outbound.CheckAddress(nil, "localhost.example.com", ip), "loopback", ip)
		for _, host := range []string{"localhost", "LocalHost.", "127.0.0.1", "127.9.9.9", "::1"} {
			require.NoError(t, outbound.CheckAddress(nil, host, ip), "%s at %s", host, ip)
		}
		require.NoError(t, outbound.CheckAddress([]string{"Scorer."}, "scorer", ip), ip)
		require.NoError(t, outbound.CheckAddress([]string{"127.0.0.0/8", "::1"}, "scorer", ip), ip)
	}
	require.Error(t, outbound.CheckAddress(nil, "::ffff:127.0.0.1", "127.0.0.1"), "a disguise is no literal")
}

func TestAPolicyNamesAllThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	p := outbound.Policy{
		Allow: []string{"127.0.0.1", "host:80", "", "*.example.com", "169.254.169.254", "fe80::/64", "::ffff:169.254.0.1"},
		Proxy: "ftp://user:hunter2@proxy", CAFile: filepath.Join(t.TempDir(), "missing.pem"),
	}
	_, err := outbound.NewTransport(p)
	for _, want := range []string{"host:80", `""`, "*.example.com", "169.254.169.254 can never", "fe80::/64 can never", "::ffff:169.254.0.1 can never", "proxy", "missing.pem"} {
		require.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "hunter2")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("no PEM certificate"), 0o600))
	_, err = outbound.NewTransport(outbound.Policy{CAFile: empty})
	require.ErrorContains(t, err, "no PEM certificate")
	_, err = outbound.NewTransport(outbound.Policy{Allow: []string{"scorer.local", "127.0.0.0/8", "::1", "0.0.0.0/0"}})
	require.NoError(t, err)
}

// byName is an upstream of one server that the URL reaches by a name.
func byName(t *testing.T, p outbound.Policy, resolver *net.Resolver, listen string) (*outbound.Upstream, *counter) {
	t.Helper()
	var asked counter
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.next()
		w.Header().Set("Connection", "close") // The next call connects, and resolves, again.
	}))
	l, err := net.Listen("tcp", listen+":0")
	require.NoError(t, err)
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	tr, err := outbound.NewTransport(p)
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	outbound.SetResolver(tr, resolver)
	g, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{fmt.Sprintf("http://scorer.test:%d", l.Addr().(*net.TCPAddr).Port)}})
	require.NoError(t, err)
	return g, &asked
}

func TestANameThatResolvesToLoopbackIsNotConnectedTo(t *testing.T) {
	t.Parallel()
	g, asked := byName(t, outbound.Policy{}, names(t, "127.0.0.1"), "127.0.0.1")
	_, err := ask(t, g)
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "127.0.0.1 of scorer.test is not allowed: loopback")
	assert.Zero(t, asked.count())
	assert.EqualValues(t, 1, g.Stats().Endpoints[0].Requests, "another attempt would be the same")
}

func TestANameOfTheAllowListMayBeLoopback(t *testing.T) {
	t.Parallel()
	g, asked := byName(t, outbound.Policy{Allow: []string{"scorer.test"}}, names(t, "127.0.0.1"), "127.0.0.1")
	_, err := ask(t, g)
	require.NoError(t, err)
	assert.Equal(t, 1, asked.count())
}

func TestANameThatResolvesToAMetadataServiceIsNotConnectedTo(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"169.254.169.254", "100.100.100.200", "0.0.0.0"} {
		g, asked := byName(t, outbound.Policy{Allow: []string{"scorer.test"}}, names(t, ip), "127.0.0.1")
		_, err := ask(t, g)
		require.ErrorIs(t, err, rewards.Internal)
		require.ErrorContains(t, err, ip+" of scorer.test is not allowed")
		assert.Zero(t, asked.count())
	}
}

func TestANameThatResolvesToAnotherAddressTheSecondTimeGainsNothing(t *testing.T) {
	t.Parallel()
	g, asked := byName(t, outbound.Policy{Allow: []string{"127.0.0.2"}}, names(t, "127.0.0.2", "127.0.0.1"), "0.0.0.0")
	_, err := ask(t, g)
	require.NoError(t, err)
	_, err = ask(t, g)
	require.ErrorContains(t, err, "127.0.0.1 of scorer.test is not allowed")
	assert.Equal(t, 1, asked.count())
}

func TestARefusedAddressInAURLIsAnErrorOfTheConfiguration(t *testing.T) {
	t.Parallel()
	tr, err := outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	for _, u := range []string{"http://169.254.169.254/latest", "http://[fe80::1]:80", "http://[::ffff:127.0.0.1]", "http://0.0.0.0:8000"} {
		_, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{u}})
		require.ErrorContains(t, err, "is not allowed", u)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked counter
	g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, r *http.Request) {
		asked.next()
		http.Redirect(w, r, "http://user:pw@169.254.169.254/latest/meta-data?x=1", http.StatusFound)
	})
	_, err := ask(t, g)
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "302 Found to 169.254.169.254; redirects are not followed")
	assert.NotContains(t, err.Error(), "pw")
	assert.Equal(t, 1, asked.count())
}

func TestTheEnvironmentsProxyIsIgnored(t *testing.T) {
	t.Parallel()
	u, err := http.ProxyFromEnvironment(httptest.NewRequest(http.MethodGet, "http://scorer.test", nil))
	require.NoError(t, err)
	require.NotNil(t, u, "TestMain has named one")
	g, asked := byName(t, outbound.Policy{Allow: []string{"scorer.test"}}, names(t, "127.0.0.1"), "127.0.0.1")
	_, err = ask(t, g)
	require.NoError(t, err)
	assert.Equal(t, 1, asked.count())
}

func TestTheConfiguredProxyIsUsedForAllButLoopback(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "proxy saw ", r.URL.Host, " ", r.Header.Get("Proxy-Authorization") != "")
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("me", "hunter2")
	g := open(t, outbound.Policy{Proxy: u.String()}, outbound.UpstreamConfig{URLs: []string{"http://scorer.invalid:8000"}})
	answer, err := ask(t, g)
	require.NoError(t, err)
	assert.Equal(t, "proxy saw scorer.invalid:8000 true", string(answer.Body))

	direct := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "direct") }))
	t.Cleanup(direct.Close)
	answer, err = ask(t, open(t, outbound.Policy{Proxy: u.String()}, outbound.UpstreamConfig{URLs: []string{direct.URL}}))
	require.NoError(t, err)
	assert.Equal(t, "direct", string(answer.Body))
}
