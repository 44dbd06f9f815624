// SPDX-License-Identifier: Apache-2.0

// Package redisconn connects to Redis or Valkey: one server, a primary that Sentinel names, or a cluster. What a broker keeps there is of the packages
// that use it: storage/redis and metadata/redis.
package redisconn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Options say where Redis is, and who asks.
type Options struct {
	// URL is redis://[USER[:PASSWORD]@]HOST:PORT[/DB], with rediss:// over TLS, or unix:///SOCKET. Further servers of a cluster, or Sentinels, are ?addr=HOST:PORT&addr=…, and
	// ?master_set=NAME says that the addresses are Sentinels'. A server that is a cluster's is found to be one.
	URL string
	// Username, if it is not empty, takes the place of the URL's.
	Username string
	// PasswordFile, if it is not empty, is a file with the password, which may end in a newline. It is read anew for each connection, so that a password can be rotated.
	PasswordFile string
	// CAFile, if it is not empty, is a file of certificates (PEM) by one of which the server's is signed, in the place of the system's; the URL must be rediss://.
	CAFile string
	// CertFile and KeyFile, if they are not empty, are the client's certificate and key (PEM).
	CertFile, KeyFile string
	// ClientName is what CLIENT LIST shows.
	ClientName string
	// Timeout is how long a server may take to answer, or a connection to be made. What waits longer on purpose has a connection of its own. Default: 10 s.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// maxSecret is the largest file that is taken for a password, in bytes.
const maxSecret = 64 << 10

// Configure translates options into those of the client. The error says which of them is wrong, and never tells a password.
func Configure(o Options) (rueidis.ClientOption, error) {
	c, err := rueidis.ParseURL(o.URL)
	if err != nil {
		return c, errors.New("the Redis URL is not understood; give redis://HOST:PORT, rediss://HOST:PORT or unix:///SOCKET")
	}
	if o.Username != "" {
		c.Username = o.Username
	}
	c.ClientName = o.ClientName
	c.DisableCache = true
	c.Dialer.Timeout = cmp.Or(max(o.Timeout, 0), defaultTimeout)
	c.ConnWriteTimeout = c.Dialer.Timeout
	c.Sentinel.Dialer = c.Dialer
	if o.PasswordFile != "" {
		user := c.Username
		if _, err := password(o.PasswordFile); err != nil {
			return c, err
		}
		c.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			secret, err := password(o.PasswordFile)
			return rueidis.AuthCredentials{Username: user, Password: secret}, err
		}
	}
	err = o.secure(&c)
	return c, err
}

// secure sets up TLS.
func (o *Options) secure(c *rueidis.ClientOption) error {
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return nil
	}
	if c.TLSConfig == nil {
		return errors.New("certificates for Redis are given, and the URL does not begin with rediss://")
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return fmt.Errorf("read the certificates that sign Redis's: %w", err)
		}
		c.TLSConfig.RootCAs = x509.NewCertPool()
		if !c.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate (PEM)", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return fmt.Errorf("read the client's certificate for Redis: %w", err)
		}
		c.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	c.Sentinel.TLSConfig = c.TLSConfig
	return nil
}

// password reads a file with a password.
func password(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("read the password for Redis: %w", err)
	}
	if info.Size() > maxSecret {
		return "", fmt.Errorf("the password for Redis in %s has more than %d bytes", file, maxSecret)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the password for Redis: %w", err)
	}
	secret := string(bytes.TrimRight(b, "\r\n"))
	if secret == "" {
		return "", fmt.Errorf("the password for Redis in %s is empty", file)
	}
	return secret, nil
}

// Open connects. It fails where no server answers; after that the client connects again by itself, with backoff.
func Open(ctx context.Context, o Options) (rueidis.Client, error) {
	c, err := Configure(o)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(c)
	if err == nil {
		if err = client.Do(ctx, client.B().Ping().Build()).Error(); err == nil {
			return client, nil
		}
		client.Close()
	}
	return nil, fmt.Errorf("connect to Redis at %s: %w", strings.Join(c.InitAddress, ", "), err)
}
