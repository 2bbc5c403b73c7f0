import { isIP } from 'node:net';
import type { EgressPolicy } from '../runtime/http/egress-policy.ts';
import type { BucketTarget, Target } from './destination-store.ts';

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
export function hostOf(target: Target): string {
  return new URL(target.endpoint).hostname.replace(/^\[|\]$/g, '');
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

/** Parses a target, or returns a sentence on the first invalid argument. */
export function parseTarget(kind: string | undefined, text: TargetTexts, rules: EgressPolicy): Target | string {
  const long = Object.keys(targetArguments.s3)
    .map((name) => name.replace('?', ''))
    .find((name) => (text(name) ?? '').length > maxLength);
  if (long !== undefined) return `Argument ${long} must have at most ${maxLength} characters`;
  return kind === 's3' ? parseBucket(text, rules) : 'Argument kind must be s3';
}

/** Describes a destination for people, without secrets: `s3://bucket/prefix`. */
export function describeTarget({ bucket, prefix }: Target): string {
  return `s3://${bucket}/${prefix}`;
}
