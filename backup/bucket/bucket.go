// Package bucket stores backups in a bucket of a server that speaks the S3 protocol. It is the one package that knows
// the library, github.com/minio/minio-go, and its errors.
//
// An object is written by one request, or by a multipart upload that appears when it is complete, so it is there whole
// or not at all. What an interrupted upload leaves is no object; the bucket's lifecycle rules delete it.
// The client repeats a request that failed for a passing reason up to ten times.
//
// Configuration comes from the variables that every AWS tool reads:
//
//	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN   else the shared credentials file, else the
//	                                                              role of the machine
//	AWS_REGION                                                    else AWS_DEFAULT_REGION, else the bucket's
//	AWS_ENDPOINT_URL_S3                                           else AWS_ENDPOINT_URL, else AWS itself
package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"perdure/backup"
)

// partBytes and partThreads bound the memory of an upload: their product.
const (
	partBytes   = 16 << 20
	partThreads = 2
)

// defaultEndpoint is AWS's own.
const defaultEndpoint = "https://s3.amazonaws.com"

// Bucket is a backup.Store below a prefix of a bucket.
type Bucket struct {
	client *minio.Client
	bucket string
	// prefix is empty or ends with a slash.
	prefix string
}

// Open returns the store at s3://BUCKET/PREFIX. It sends nothing. env reads the environment; nil: the process's.
func Open(location string, env func(string) string) (*Bucket, error) {
	if env == nil {
		env = os.Getenv
	}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no location of the form s3://bucket/prefix", location)
	}
	endpoint := cmp.Or(env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"), defaultEndpoint)
	e, err := url.Parse(endpoint)
	if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" || strings.Trim(e.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q is no URL of the form https://host:port", endpoint)
	}
	client, err := minio.New(e.Host, &minio.Options{
		Secure: e.Scheme == "https",
		Region: cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION")),
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.Static{Value: credentials.Value{AccessKeyID: env("AWS_ACCESS_KEY_ID"), SecretAccessKey: env("AWS_SECRET_ACCESS_KEY"),
				SessionToken: env("AWS_SESSION_TOKEN"), SignerType: credentials.SignatureV4}},
			&credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: http.DefaultTransport}},
		}),
	})
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{client, u.Host, prefix}, nil
}

// Put implements backup.Store. A reader that can read at any offset is sent again if a part fails.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	_, err := b.client.PutObject(ctx, b.bucket, b.prefix+name, r, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true, PartSize: partBytes, NumThreads: partThreads})
	return err
}

// missing reports whether an error means that there is no such object.
func missing(err error) bool {
	return minio.ToErrorResponse(err).Code == minio.NoSuchKey
}

// Get implements backup.Store.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := b.client.GetObject(ctx, b.bucket, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	// The request is sent by the first use.
	if _, err := o.Stat(); err != nil {
		if missing(err) {
			err = &backup.NotFoundError{What: "object", Name: name}
		}
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// List implements backup.Store.
func (b *Bucket) List(ctx context.Context, prefix string) ([]backup.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	var out []backup.Object
	for o := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		out = append(out, backup.Object{Name: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size})
	}
	slices.SortFunc(out, func(x, y backup.Object) int { return strings.Compare(x.Name, y.Name) })
	return out, ctx.Err()
}

// Delete implements backup.Store.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	if missing(err) {
		return nil
	}
	return err
}

// Exists implements backup.Store.
func (b *Bucket) Exists(ctx context.Context, name string) (int64, bool, error) {
	info, err := b.client.StatObject(ctx, b.bucket, b.prefix+name, minio.StatObjectOptions{})
	if missing(err) {
		return 0, false, nil
	}
	return info.Size, err == nil, err
}
