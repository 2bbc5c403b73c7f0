/** The servers of one NATS cluster and the credentials for all of them. */
interface NatsServers {
  /** `host` or `host:port` of each server; at least one. */
  readonly hosts: readonly string[];
  readonly tls: boolean;
  readonly user: string | undefined;
  readonly password: string | undefined;
  /** A name without a password is a token, as in NATS's own clients. */
  readonly token: string | undefined;
}

const protocols = ['nats:', 'tls:'];

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Parses comma-separated `nats://[user:password@]host[:port]`. Credentials apply to all. Problems show no secrets. */
export function parseNatsUrl(text: string): NatsServers | { readonly problem: string } {
  const parts = text.split(',').map((part) => part.trim());
  const urls = parts.flatMap((part) => (URL.canParse(part) ? [new URL(part)] : []));
  if (urls.length < parts.length || urls.some((url) => !protocols.includes(url.protocol) || url.host === '')) {
    return {
      problem: 'must be addresses such as nats://host:4222 or tls://user:password@host:4222, with commas between them',
    };
  }
  if (urls.some((url) => !['', '/'].includes(url.pathname) || url.search !== '' || url.hash !== '')) {
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
  };
}
