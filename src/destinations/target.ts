import { isIP } from 'node:net';
import type { EgressPolicy } from '../runtime/http/egress-policy.ts';
import type { BucketTarget, FolderTarget, Target } from './destination-store.ts';

/** Texts of a new destination by their names; absent ones are undefined. */
export type TargetTexts = (name: string) => string | undefined;

/** The arguments of each kind, with their meaning. A `?` marks optional ones. */
export const targetArguments = {
  s3: {
    endpoint: 'URL of the server.',
    'region?': 'Region. Default: us-east-1.',
    bucket: 'Bucket.',
    'prefix?': 'Prefix of the objects. Default: none.',
    'pathStyle?': '0: the bucket is in the host name. Default: 1.',
    accessKeyId: 'Id of the access key.',
  },
  sftp: {
    host: 'Host of the server.',
    'port?': 'Port. Default: 22.',
    username: 'User of the server.',
    'folder?': 'Folder, which must exist. Default: the home folder.',
    hostKey: 'Fingerprint of the server, as `ssh-keygen -l` prints it: SHA256 and base64.',
  },
} as const;

const maxLength = 500;
/** Characters of a path that are safe in a key, a folder and a log. */
const safePath = /^[\p{L}\p{N} !'()*./=@_~+-]*$/u;

/** Reports whether a path leads out of its folder. */
const isTraversal = (path: string): boolean => path.split('/').some((part) => part === '..' || part === '.');

function refuseHost(host: string, rules: EgressPolicy): string | undefined {
  if (!rules.allowsHost(host)) return `the operator does not allow ${host}`;
  return isIP(host) !== 0 && !rules.allowsAddress(host) ? `${host} is not an allowed address` : undefined;
}

/** Returns the host of a target. */
function hostOf(target: Target): string {
  return target.kind === 'sftp' ? target.host : new URL(target.endpoint).hostname.replace(/^\[|\]$/g, '');
}

/** Returns why a target may not be connected to: the operator's list may have changed since it was added. */
export function refuseTarget(target: Target, rules: EgressPolicy): string | undefined {
  return refuseHost(hostOf(target), rules);
}

function parseBucket(text: TargetTexts, rules: EgressPolicy): BucketTarget | string {
  const [endpoint = '', region = 'us-east-1', bucket = ''] = [text('endpoint'), text('region'), text('bucket')];
  const [prefix = '', pathStyle = '1', accessKeyId = ''] = [text('prefix'), text('pathStyle'), text('accessKeyId')];
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '')
    return 'Argument endpoint must be a URL such as https://s3.eu-central-1.amazonaws.com';
  if (url.pathname !== '/') return 'Argument endpoint must have no path';
  const refusal = refuseHost(url.hostname.replace(/^\[|\]$/g, ''), rules);
  if (refusal !== undefined) return `Argument endpoint is invalid: ${refusal}`;
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) return 'Argument bucket must be the name of a bucket';
  if (!/^[a-z0-9-]{1,40}$/.test(region)) return 'Argument region must be a region such as eu-central-1';
  if (!safePath.test(prefix) || isTraversal(prefix) || prefix.startsWith('/'))
    return 'Argument prefix must be a relative path without . and .. parts';
  if (pathStyle !== '0' && pathStyle !== '1') return 'Argument pathStyle must be 0 or 1';
  if (!/^[\x21-\x7e]{1,200}$/.test(accessKeyId)) return 'Argument accessKeyId is expected: printable ASCII';
  const ended = prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`;
  const place = { endpoint: url.origin, region, bucket, prefix: ended };
  return { kind: 's3', ...place, pathStyle: pathStyle === '1', accessKeyId };
}

function parseFolder(text: TargetTexts, rules: EgressPolicy): FolderTarget | string {
  const [host = '', port = '22', user = ''] = [text('host')?.toLowerCase(), text('port'), text('username')];
  const [folder = '.', hostKey = ''] = [text('folder'), text('hostKey')];
  if (isIP(host) === 0 && !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(host)) return 'Argument host must be a host name';
  const refusal = refuseHost(host, rules);
  if (refusal !== undefined) return `Argument host is invalid: ${refusal}`;
  if (!/^[1-9]\d{0,4}$/.test(port) || Number(port) > 65_535) return 'Argument port must be from 1 to 65535';
  if (!/^[\x21-\x7e]{1,100}$/.test(user)) return 'Argument username is expected: printable ASCII';
  const isHome = folder === '.';
  if (!isHome && (folder === '' || !safePath.test(folder) || isTraversal(folder)))
    return 'Argument folder must be a path without . and .. parts';
  if (!/^SHA256:[A-Za-z0-9+/]{43}$/.test(hostKey))
    return "Argument hostKey must be SHA256: and 43 characters, as 'ssh-keygen -lf' prints it for the server's key";
  return { kind: 'sftp', host, port: Number(port), user, folder: folder.replace(/(?<=.)\/+$/, ''), hostKey };
}

/** Parses a target, or returns a sentence on the first invalid argument. */
export function parseTarget(kind: string | undefined, text: TargetTexts, rules: EgressPolicy): Target | string {
  const names = [...Object.keys(targetArguments.s3), ...Object.keys(targetArguments.sftp)];
  const long = names.map((name) => name.replace('?', '')).find((name) => (text(name) ?? '').length > maxLength);
  if (long !== undefined) return `Argument ${long} must have at most ${maxLength} characters`;
  if (kind === 's3') return parseBucket(text, rules);
  return kind === 'sftp' ? parseFolder(text, rules) : 'Argument kind must be s3 or sftp';
}

/** Describes a place for people, without secrets: `s3://bucket/prefix`, `sftp://user@host/folder`. */
export function describeTarget(target: Target): string {
  if (target.kind === 's3') return `s3://${target.bucket}/${target.prefix}`;
  const { host, port, user, folder } = target;
  return `sftp://${user}@${host}${port === 22 ? '' : `:${port}`}/${folder === '.' ? '' : folder.replace(/^\//, '')}`;
}
