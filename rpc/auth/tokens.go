package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The file of tokens is a YAML list. It holds hashes only, so reading it gives no access:
//
//	- name: ci                      # in logs and refusals; unique
//	  hash: "sha256:9f86d081…"      # of the token; perdure token hash prints it
//	  namespace: billing            # or "*" for all
//	  role: write                   # read, write or admin
//
// A plain hash suffices because a token is not a password: it has its strength from being random.

const hashPrefix = "sha256:"

// MinTokenBytes is the least length of a token that people choose: against one that can be guessed, a slow
// hash does not help either.
const MinTokenBytes = 24

// Hash is a token as the file has it.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// NewToken makes a token of 32 random bytes.
func NewToken(random io.Reader) (string, error) {
	if random == nil {
		random = rand.Reader
	}
	var b [32]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return "prd_" + base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// tokenRow is one entry of the file.
type tokenRow struct {
	Name      string `yaml:"name"`
	Hash      string `yaml:"hash"`
	Namespace string `yaml:"namespace"`
	Role      string `yaml:"role"`
}

// Row is the entry of a token in the file, as YAML text. An error says what is wrong with an argument.
func Row(name, token, namespace string, role Role) (string, error) {
	row := tokenRow{Name: name, Hash: Hash(token), Namespace: namespace, Role: role.String()}
	if _, err := row.principal(); err != nil {
		return "", err
	}
	text, err := yaml.Marshal([]tokenRow{row})
	return string(text), err
}

// tokenList is the content of the file.
type tokenList struct {
	hashes     [][sha256.Size]byte
	principals []Principal
}

// find compares with every hash, each in constant time: its duration does not show how near a guess was.
func (l *tokenList) find(sum [sha256.Size]byte) (Principal, bool) {
	at := -1
	for i := range l.hashes {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], l.hashes[i][:]), i, at)
	}
	if at < 0 {
		return Principal{}, false
	}
	return l.principals[at], true
}

func parseTokens(content []byte) (*tokenList, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var rows []tokenRow
	if err := decoder.Decode(&rows); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("not a list of tokens with name, hash, namespace and role: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one list")
	}
	if len(rows) == 0 {
		return nil, errors.New("contains no token")
	}
	list := &tokenList{}
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]string{}
	for i, row := range rows {
		p, err := row.principal()
		if err != nil {
			return nil, fmt.Errorf("token %d (%.64q): %w", i+1, row.Name, err)
		}
		if names[p.Name] {
			return nil, fmt.Errorf("token %d: the name %q is used twice", i+1, p.Name)
		}
		names[p.Name] = true
		sum := row.sum()
		if other, twice := hashes[sum]; twice {
			return nil, fmt.Errorf("token %d (%q): the hash is that of token %q", i+1, p.Name, other)
		}
		hashes[sum] = p.Name
		list.hashes = append(list.hashes, sum)
		list.principals = append(list.principals, p)
	}
	return list, nil
}

// principal checks a row. Its errors never contain the hash, which might be the token itself.
func (r tokenRow) principal() (Principal, error) {
	role, err := ParseRole(r.Role)
	digits, prefixed := strings.CutPrefix(r.Hash, hashPrefix)
	raw, notHex := hex.DecodeString(digits)
	switch {
	case r.Name == "" || len(r.Name) > 64:
		return Principal{}, errors.New("the name needs 1 to 64 bytes")
	case !prefixed || notHex != nil || len(raw) != sha256.Size:
		return Principal{}, fmt.Errorf("the hash is not %q and %d hexadecimal digits; perdure token hash makes one", hashPrefix, 2*sha256.Size)
	case r.Namespace == "" || len(r.Namespace) > 256:
		return Principal{}, fmt.Errorf("the namespace needs 1 to 256 bytes; %q is for all", AllNamespaces)
	case err != nil:
		return Principal{}, err
	}
	return Principal{Name: r.Name, Namespace: r.Namespace, Role: role}, nil
}

// sum is the hash of a row that principal has accepted.
func (r tokenRow) sum() (sum [sha256.Size]byte) {
	raw, _ := hex.DecodeString(strings.TrimPrefix(r.Hash, hashPrefix))
	copy(sum[:], raw)
	return sum
}
