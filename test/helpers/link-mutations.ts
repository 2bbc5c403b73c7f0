import * as fc from 'fast-check';

/** A changed link, and the name of its changed component. */
export interface ChangedLink {
  readonly component: string;
  readonly text: string;
}

const alphabet = Array.from(
  '/?=&%.-_0123456789abcdefABCDEFghijklmnopqrstuvwxyz +#~;:@\\"\u0000\u00e9\u0660\uff11\u{1f600}\t\r\n',
);
const methods = ['GET', 'HEAD', 'POST'];

interface Parts {
  readonly link: string;
  readonly path: string;
  readonly id: string;
  readonly name: string;
  readonly expires: string;
  readonly kid: string;
  readonly signature: string;
  /** Empty in a link of an earlier version. */
  readonly user: string;
  readonly ending: string;
}

function partsOf(link: string): Parts {
  const { file = '', query = '' } = /^(?<file>\/files\/[^?]+)\?(?<query>.+)$/.exec(link)?.groups ?? {};
  const [, id = '', name = ''] = /^\/files\/(\d+)\/(.+)$/.exec(file) ?? [];
  const of = (parameter: string): string => new URLSearchParams(query).get(parameter) ?? '';
  const [expires, kid, signature] = [of('expires'), of('kid'), of('signature')];
  if (signature === '') throw new Error(`not a link: ${link}`);
  return { link, path: file, id, name, expires, kid, signature, user: of('user'), ending: of('x-ending') };
}

const sortQuery = (link: string): string =>
  link.replace(/\?.*$/s, (query) => query.slice(1).split('&').toSorted().join());

/** Reports whether a text is the link in another order of parameters, or without the ending, which is not signed. */
export function isSameLink(text: string, link: string): boolean {
  return [link, link.replace(/&x-ending=[^&]*/, '')].some((same) => sortQuery(text) === sortQuery(same));
}

/** Generates other notations of the same number, name or bytes, which a lenient reader would accept. */
function respellings(text: string): fc.Arbitrary<string> {
  const at = fc.nat(text.length - 1);
  const escape = (index: number, upper: boolean): string => {
    const hex = text.charCodeAt(index).toString(16);
    return `${text.slice(0, index)}%${upper ? hex.toUpperCase() : hex}${text.slice(index + 1)}`;
  };
  return fc.oneof(
    fc.tuple(at, fc.boolean()).map(([index, upper]) => escape(index, upper)),
    at.map((index) => `${text.slice(0, index)}%25${text.charCodeAt(index).toString(16)}${text.slice(index + 1)}`),
    at.map(
      (index) =>
        `${text.slice(0, index)}${String.fromCharCode(text.charCodeAt(index) + 0xfee0)}${text.slice(index + 1)}`,
    ),
    fc.constantFrom(
      text.toUpperCase(),
      ` ${text}`,
      `${text} `,
      `+${text}`,
      `0${text}`,
      `0x${text}`,
      `${text}.0`,
      `${text}%00`,
      `${text}%0a`,
      `"${text}"`,
      `${text}=`,
      Buffer.from(text, 'latin1').toString('base64url'),
    ),
  );
}

/** Generates changes of bytes anywhere in the link: replaced, inserted, removed, repeated. */
function changedBytes({ link }: Parts): fc.Arbitrary<string> {
  const at = fc.nat(link.length);
  return fc.oneof(
    fc
      .tuple(at, fc.constantFrom(...alphabet))
      .map(([index, character]) => link.slice(0, index) + character + link.slice(index + 1)),
    fc
      .tuple(at, fc.constantFrom(...alphabet))
      .map(([index, character]) => link.slice(0, index) + character + link.slice(index)),
    fc
      .tuple(at, fc.integer({ min: 1, max: 40 }))
      .map(([index, length]) => link.slice(0, index) + link.slice(index + length)),
    fc
      .tuple(at, fc.integer({ min: 1, max: 40 }))
      .map(([index, length]) => link.slice(0, index + length) + link.slice(index)),
    fc
      .tuple(at, fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }))
      .map(([index, text]) => link.slice(0, index) + text + link.slice(index)),
  );
}

function changedPath({ link, path, id, name }: Parts, other: Parts): fc.Arbitrary<string> {
  const paths = fc.constantFrom(
    other.path,
    `/files/${other.id}/${name}`,
    `/files/${id}/${other.name}`,
    `//files/${id}/${name}`,
    `/files//${id}/${name}`,
    `/files/${id}//${name}`,
    `/files/${id}/./${name}`,
    `/files/${id}/${name}/`,
    `/files/${id}/x/../${name}`,
    `/files/${id}/%2e%2e/${id}/${name}`,
    `/files/${id}/..%2fjob.json`,
    `/files/${id}/..\\${name}`,
    `/files/${id}/job.json`,
    `/Files/${id}/${name}`,
    `/./files/${id}/${name}`,
    `http://127.0.0.1${path}`,
    `//127.0.0.1${path}`,
    path.slice(1),
    '/files/',
    '*',
  );
  return fc.oneof(
    paths.map((changed) => link.replace(path, changed)),
    respellings(name).map((changed) => link.replace(name, changed)),
    fc.integer({ min: 0, max: 2 ** 50 }).map((number) => link.replace(`/files/${id}/`, `/files/${number}/`)),
  );
}

function changedExpiry({ link, expires }: Parts, other: Parts): fc.Arbitrary<string> {
  const numbers = fc.oneof(
    fc.integer({ min: -1, max: 2 ** 53 }).map(String),
    fc.integer({ min: -1000, max: 1000 }).map((seconds) => String(Number(expires) + seconds)),
    fc.constantFrom('', 'NaN', '1e12', 'Infinity', '-1', other.expires),
  );
  return fc
    .oneof(numbers, respellings(expires))
    .map((changed) => link.replace(`expires=${expires}`, `expires=${changed}`));
}

function changedKey({ link, kid }: Parts, others: readonly Parts[]): fc.Arbitrary<string> {
  const kids = fc.oneof(
    fc.constantFrom(
      ...others.map((other) => other.kid),
      '',
      '00000000',
      'current',
      '__proto__',
      'constructor',
      '../links',
    ),
    fc.integer({ min: 0, max: 0xffff_ffff }).map((value) => value.toString(16).padStart(8, '0')),
    respellings(kid),
  );
  return kids.map((changed) => link.replace(`kid=${kid}`, `kid=${changed}`));
}

function changedUser({ link, user }: Parts, others: readonly Parts[]): fc.Arbitrary<string> {
  const [from, named] = user === '' ? ['&signature=', '&signature='] : [`&user=${user}`, ''];
  const users = fc.oneof(
    fc.constantFrom(...others.map((other) => other.user), '0', '-1', '__proto__'),
    fc.integer({ min: 1, max: 2 ** 45 }).map(String),
    ...(user === '' ? [] : [respellings(user)]),
  );
  return fc.oneof(
    users.map((changed) => link.replace(from, `&user=${changed}${named}`)),
    fc.constantFrom(link.replace(from, named), link.replace(from, `${from}${from}`)),
  );
}

function changedSignature({ link, signature }: Parts, others: readonly Parts[]): fc.Arbitrary<string> {
  const nibble = fc
    .tuple(fc.nat(signature.length - 1), fc.integer({ min: 1, max: 15 }))
    .map(
      ([at, difference]) =>
        signature.slice(0, at) +
        (Number.parseInt(signature[at] ?? '0', 16) ^ difference).toString(16) +
        signature.slice(at + 1),
    );
  const bytes = fc.uint8Array({ minLength: 0, maxLength: 40 }).map((value) => Buffer.from(value).toString('hex'));
  const short = fc.nat(signature.length - 1).map((length) => signature.slice(0, length));
  return fc
    .oneof(
      nibble,
      bytes,
      short,
      respellings(signature),
      fc.constantFrom(...others.map((other) => other.signature), '0'.repeat(64), `${signature}${signature}`),
    )
    .map((changed) => link.replace(`signature=${signature}`, `signature=${changed}`));
}

/** Generates changed queries: parameters in another order, missing, repeated, renamed, joined differently. */
function changedQuery({ path, expires, kid, user, signature, ending }: Parts, other: Parts): fc.Arbitrary<string> {
  const pairs = [
    ['expires', expires],
    ['kid', kid],
    ['signature', signature],
    ['expires', other.expires],
    ['user', user],
    ['kid', other.kid],
    ['user', other.user],
    ['signature', other.signature],
    ['x-ending', ending],
    ['x-ending', '.zip'],
    ['method', 'GET'],
    ['x', '1'],
  ] as const;
  const name = fc.constantFrom(
    (text: string) => text,
    (text: string) => text.toUpperCase(),
    (text: string) => `${text}[]`,
    (text: string) => `${text}%20`,
    (text: string) => `%${text.charCodeAt(0).toString(16)}${text.slice(1)}`,
  );
  const pair = fc.tuple(fc.constantFrom(...pairs), name).map(([[key, value], rename]) => `${rename(key)}=${value}`);
  return fc
    .tuple(
      fc.array(pair, { maxLength: 6 }),
      fc.constantFrom('&', '&', '&', ';', '&&', '?', '&amp;'),
      fc.constantFrom('?', '?', '?', '??', '?&', '#', '%3f'),
    )
    .map(([chosen, between, mark]) => path + mark + chosen.join(between));
}

/**
 * Generates changes of signed links: a component changed by one step, or replaced by that of another link. Sometimes
 * the result equals one of the links: the caller skips those (isSameLink).
 */
export function changedLinks(links: readonly string[]): fc.Arbitrary<ChangedLink> {
  const all = links.map(partsOf);
  const one = fc.constantFrom(...all);
  const of = (
    component: string,
    change: (parts: Parts, other: Parts) => fc.Arbitrary<string>,
  ): fc.Arbitrary<ChangedLink> =>
    fc
      .tuple(one, one)
      .chain(([parts, other]) => change(parts, other))
      .map((text) => ({ component, text }));
  return fc.oneof(
    of('bytes', changedBytes),
    of('path', changedPath),
    of('expiry', changedExpiry),
    of('key', (parts) => changedKey(parts, all)),
    of('user', (parts) => changedUser(parts, all)),
    of('signature', (parts) => changedSignature(parts, all)),
    of('query', changedQuery),
    of('two components', (parts, other) =>
      changedExpiry(parts, other).chain((text) =>
        fc.constantFrom(
          text.replace(parts.path, other.path),
          text.replace(parts.signature, other.signature),
          text.replace(parts.kid, other.kid),
          `${methods.join('')}${text}`,
        ),
      ),
    ),
  );
}
