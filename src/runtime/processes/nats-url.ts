/** Absolute paths of the files with which a client of a cluster identifies itself, and checks the cluster's identity. */
export interface NatsFiles {
  /** User's JWT and seed, as `nsc generate creds` writes them. */
  readonly credentials?: string;
  /** PEM file of the certificate authorities. */
  readonly ca?: string;
  /** PEM file of the client's certificate. */
  readonly cert?: string;
  /** PEM file of its key. */
  readonly key?: string;
}

/** The servers of one NATS cluster and the credentials for all of them. */
interface NatsServers {
  /** `host` or `host:port` of each server; at least one. */
  readonly hosts: readonly string[];
  readonly tls: boolean;
  readonly user: string | undefined;
  readonly password: string | undefined;
  /** A name without a password is a token, as in NATS's own clients. */
  readonly token: string | undefined;
  readonly files: NatsFiles;
}

const protocols = ['nats:', 'tls:'];
const fileNames = ['credentials', 'ca', 'cert', 'key'] as const satisfies readonly (keyof NatsFiles)[];

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Adds files to the addresses of a cluster, as a query of the last one, so that they stay one text. */
export function addNatsFiles(text: string, files: Readonly<Record<keyof NatsFiles, string | undefined>>): string {
  const query = fileNames.flatMap((name) => {
    const file = files[name];
    return file === undefined ? [] : [`${name}=${encodeURIComponent(file)}`];
  });
  return query.length === 0 ? text : `${text.replace(/\?.*$/, '')}?${query.join('&')}`;
}

function parseFiles(url: URL | undefined): NatsFiles | undefined {
  const files = [...(url?.searchParams ?? [])];
  return files.every(([name]) => fileNames.some((known) => known === name)) ? Object.fromEntries(files) : undefined;
}

/**
 * Parses comma-separated `nats://[user:password@]host[:port]`; later ones may lack the scheme, as in NATS's own tools.
 * Credentials apply to all. Problems show no secrets.
 */
export function parseNatsUrl(text: string): NatsServers | { readonly problem: string } {
  const given = text.split(',').map((part) => part.trim());
  const [scheme = ''] = /^\w+:\/\//.exec(given[0] ?? '') ?? [];
  const parts = given.map((part) => (part === '' || part.includes('://') ? part : `${scheme}${part}`));
  const urls = parts.flatMap((part) => (URL.canParse(part) ? [new URL(part)] : []));
  if (urls.length < parts.length || urls.some((url) => !protocols.includes(url.protocol) || url.host === '')) {
    return {
      problem: 'must be addresses such as nats://host:4222 or tls://user:password@host:4222, with commas between them',
    };
  }
  const files = parseFiles(urls.at(-1));
  if (
    files === undefined ||
    urls.some(
      (url, index) =>
        !['', '/'].includes(url.pathname) || url.hash !== '' || (index < urls.length - 1 && url.search !== ''),
    )
  ) {
    return {
      problem: 'must end each address after host and port; write / ? # % in a password as %2F %3F %23 %25',
    };
  }
  if (new Set(urls.map((url) => url.protocol)).size > 1) return { problem: 'must not mix nats:// and tls://' };

  const named = urls.filter((url) => url.username !== '' || url.password !== '');
  const signIns = new Set(named.map((url) => `${url.username}:${url.password}`));
  if (signIns.size > 1) return { problem: 'must name the same user and password in every address, or in one of them' };
  const user = decode(named[0]?.username ?? '');
  const password = decode(named[0]?.password ?? '');
  if (user === undefined || password === undefined)
    return { problem: 'has a user or password in which % does not begin two hex digits; write % as %25' };

  const isToken = user !== '' && password === '';
  return {
    hosts: urls.map((url) => url.host),
    tls: urls[0]?.protocol === 'tls:',
    user: isToken || user === '' ? undefined : user,
    password: isToken || user === '' ? undefined : password,
    token: isToken ? user : undefined,
    files,
  };
}
