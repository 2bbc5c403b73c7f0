import { gzipSync } from 'node:zlib';

/** Bytes to send; compressed when somebody first asks for that. */
export interface Addressed {
  readonly plain: Buffer;
  readonly gzip: () => Buffer;
}

/** Stands for the address while a text is rendered: a host that nobody has, and a port that marks the area. */
const noHost = 'address.invalid';
const noUrl = `http://${noHost}:1`;

/** The host of an address, which may be one that no URL has: it is the caller's word. */
const hostOf = (url: string): string => /^https?:\/\/(\[[^\]]*\]|[^:/]*)/.exec(url)?.[1] ?? '';

/** Texts kept, one for each address that the service was asked under: few, whatever strangers write into `Host`. */
const mostKept = 4;

function keepBytes(plain: Buffer): Addressed {
  let packed: Buffer | undefined;
  return { plain, gzip: () => (packed ??= gzipSync(plain)) };
}

/**
 * Creates texts that name the address at which they are asked for. They are rendered once: for each address, which is the
 * caller's word, only that is put in, escaped as the text needs it.
 */
export function createAddressed(
  render: (exportUrl: string) => string,
  escape: (text: string) => string,
): (exportUrl: string) => Addressed {
  const kept = new Map<string, Addressed>();
  let rendered: string | undefined;
  return (exportUrl) => {
    const known = kept.get(exportUrl);
    if (known !== undefined) return known;
    rendered ??= render(noUrl);
    // The import area may be described under the host that was asked, with a port of its own.
    const text = rendered
      .replaceAll(noUrl, () => escape(exportUrl))
      .replaceAll(noHost, () => escape(hostOf(exportUrl)));
    const made = keepBytes(Buffer.from(text));
    const [oldest] = kept.keys();
    if (kept.size >= mostKept && oldest !== undefined) kept.delete(oldest);
    kept.set(exportUrl, made);
    return made;
  };
}
