import * as fc from 'fast-check';

/** Bytes for one connection that are an invalid request, or may be one. */
export interface RawTalk {
  readonly kind: string;
  /** One character per byte (latin1). */
  readonly text: string;
}

/** Parts of a raw request: target, sender and event. */
export interface RawTarget {
  readonly path: string;
  readonly authorization: string;
  /** The body; its event may be stored if the response is 200. */
  readonly body: string;
  /** A body in a request inside a body: its event must never be stored. */
  readonly smuggled: string;
}

const hex = (text: string): string => text.length.toString(16);
const chunk = (text: string): string => `${hex(text)}\r\n${text}\r\n`;

function request({ path, authorization }: RawTarget, headers: string, body: string): string {
  return `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: ${authorization}\r\n${headers}\r\n${body}`;
}

/** Generates heads with two different ends of the body: by length and by chunks. A further request follows. */
function twoEnds(target: RawTarget): fc.Arbitrary<string> {
  const inner = request(target, `Content-Length: ${target.smuggled.length}\r\n`, target.smuggled);
  const codings = fc.constantFrom(
    'Transfer-Encoding: chunked',
    'Transfer-Encoding : chunked',
    'Transfer-Encoding:\tchunked',
    'transfer-encoding: CHUNKED',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity',
    'Transfer-Encoding: identity, chunked',
    'Transfer-Encoding: chunked, identity',
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding: "chunked"',
    'Transfer-Encoding: chunked;q=1',
    'X: y\nTransfer-Encoding: chunked',
    'X: y\rTransfer-Encoding: chunked',
    'Transfer-Encoding:\r\n chunked',
    'Transfer_Encoding: chunked\r\nTransfer-Encoding: chunked',
  );
  const lengths = fc.constantFrom(
    `Content-Length: ${5 + inner.length}`,
    `Content-Length: ${5 + inner.length}\r\nContent-Length: 5`,
    `Content-Length: 5, ${5 + inner.length}`,
    `content-length:${5 + inner.length}`,
    `Content-Length: +${5 + inner.length}`,
  );
  return fc
    .tuple(codings, lengths, fc.boolean())
    .map(([coding, length, first]) =>
      request(target, `${first ? `${coding}\r\n${length}` : `${length}\r\n${coding}`}\r\n`, `0\r\n\r\n${inner}`),
    );
}

function oddLengths(target: RawTarget): fc.Arbitrary<string> {
  const { length } = target.body;
  const values = fc.constantFrom(
    `-${length}`,
    `+${length}`,
    `0x${hex(target.body)}`,
    `${length}.0`,
    `${length},${length}`,
    `${length}, 1`,
    '',
    ' ',
    'NaN',
    '1e3',
    '18446744073709551616',
    '99999999999999999999999',
    `${length + 1}`,
    `${length}\r\nContent-Length: ${length + 1}`,
    `${length} ${length}`,
    `${length}\u0000`,
    '\u0660',
  );
  return values.map((value) => request(target, `Content-Length: ${value}\r\n`, target.body));
}

function oddChunks(target: RawTarget): fc.Arbitrary<string> {
  const { body } = target;
  const half = Math.floor(body.length / 2);
  const bodies = fc.constantFrom(
    `${chunk(body)}0\r\n`,
    chunk(body),
    `${hex(body)}\n${body}\n0\n\n`,
    `${hex(body)};${'x'.repeat(5000)}\r\n${body}\r\n0\r\n\r\n`,
    `${hex(body)} \r\n${body}\r\n0\r\n\r\n`,
    ` ${hex(body)}\r\n${body}\r\n0\r\n\r\n`,
    `-${hex(body)}\r\n${body}\r\n0\r\n\r\n`,
    `0x${hex(body)}\r\n${body}\r\n0\r\n\r\n`,
    `ffffffffffffffffff\r\n${body}\r\n0\r\n\r\n`,
    `7fffffffffffffff\r\n${body}`,
    `${(body.length + 5).toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    `${(body.length - 5).toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    `${chunk(body.slice(0, half))}zz\r\n`,
    `${chunk(body.slice(0, half))}${chunk(body.slice(half))}0\r\n\r\n`,
    `${chunk(body)}0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n`,
    `${chunk(body)}0\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`,
    `${Array.from(body, (character) => chunk(character)).join('')}0\r\n\r\n`,
    `${hex(body)}\r\n${body}0\r\n\r\n`,
    `\r\n${chunk(body)}0\r\n\r\n`,
    `${chunk(body)}00000000000000000\r\n\r\n`,
  );
  return bodies.map((chunks) => request(target, 'Transfer-Encoding: chunked\r\n', chunks));
}

function oddHeads(target: RawTarget): fc.Arbitrary<string> {
  const { path, authorization, body } = target;
  const tail = `Authorization: ${authorization}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const starts = fc.constantFrom(
    `POST ${path} HTTP/0.9\r\n`,
    `POST ${path} HTTP/1.0\r\n`,
    `POST ${path} HTTP/2.0\r\nHost: a\r\n`,
    `POST ${path} HTTP/9.9\r\nHost: a\r\n`,
    `POST ${path}\r\n`,
    `POST  ${path}  HTTP/1.1\r\nHost: a\r\n`,
    `post ${path} HTTP/1.1\r\nHost: a\r\n`,
    `POSTS ${path} HTTP/1.1\r\nHost: a\r\n`,
    `POST ${path} http/1.1\r\nHost: a\r\n`,
    `\r\n\r\nPOST ${path} HTTP/1.1\r\nHost: a\r\n`,
    `POST http://b${path} HTTP/1.1\r\nHost: a\r\n`,
    `POST ${path} HTTP/1.1\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n`,
    `POST ${path} HTTP/1.1\nHost: a\n`,
    `POST ${path} HTTP/1.1\r\n Host: a\r\n`,
    `POST ${path} HTTP/1.1\r\nHost : a\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nX\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\n: y\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nX: a\u0000b\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: \u00ff\u00fe\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\n${'X: y\r\n'.repeat(3000)}`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\n${'x'.repeat(30_000)}: y\r\n`,
    `POST ${path}${'&x=1'.repeat(5000)} HTTP/1.1\r\nHost: a\r\n`,
    `POST ${path}%00 HTTP/1.1\r\nHost: a\r\n`,
    `POST ${path}\u00ff HTTP/1.1\r\nHost: a\r\n`,
    `POST /v1/%ff${path} HTTP/1.1\r\nHost: a\r\n`,
    `POST * HTTP/1.1\r\nHost: a\r\n`,
    `CONNECT a:80 HTTP/1.1\r\nHost: a\r\n`,
    `TRACE ${path} HTTP/1.1\r\nHost: a\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nExpect: 200-maybe\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip, gzip\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    '\u0016\u0003\u0001\u0002\u0000\u0001\u0000',
  );
  return starts.map((start) => start + tail);
}

function of(kind: string, texts: fc.Arbitrary<string>): fc.Arbitrary<RawTalk> {
  return texts.map((text) => ({ kind, text }));
}

/** Generates exchanges of every kind around an event. */
export function rawTalks(target: RawTarget): fc.Arbitrary<RawTalk> {
  const valid = request(target, `Content-Length: ${target.body.length}\r\n`, target.body);
  const at = fc.nat(valid.length - 1);
  const byte = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code));
  return fc.oneof(
    of('two ends', twoEnds(target)),
    of('lengths', oddLengths(target)),
    of('chunks', oddChunks(target)),
    of('heads', oddHeads(target)),
    of(
      'half',
      at.map((end) => valid.slice(0, end)),
    ),
    of(
      'bytes',
      fc.oneof(
        fc.tuple(at, byte).map(([index, character]) => valid.slice(0, index) + character + valid.slice(index + 1)),
        fc.tuple(at, byte).map(([index, character]) => valid.slice(0, index) + character + valid.slice(index)),
        fc
          .tuple(at, fc.integer({ min: 1, max: 20 }))
          .map(([index, length]) => valid.slice(0, index) + valid.slice(index + length)),
      ),
    ),
    of(
      'rubbish',
      fc.array(byte, { minLength: 1, maxLength: 200 }).map((characters) => characters.join('')),
    ),
  );
}
