import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { isSystemError } from '../runtime/errors.ts';

/** One archive that this machine already trusts: where it is, and the options under which apt trusts it. */
export interface AptMirror {
  readonly uri: string;
  /** deb822 fields to carry over (`Signed-By`, `Trusted`), as the machine's own sources have them. */
  readonly options: Readonly<Record<string, string>>;
}

/** One entry of the machine's sources, in either of apt's formats. */
export interface AptSource {
  readonly uris: readonly string[];
  readonly suites: readonly string[];
  readonly components: readonly string[];
  readonly options: Readonly<Record<string, string>>;
}

/**
 * Parses a `.sources` file (deb822): stanzas of `Field: value`, continuation lines indented. Disabled and source-only
 * stanzas are left out.
 */
export function parseDeb822Sources(text: string): AptSource[] {
  const lines = text.split('\n').filter((line) => !line.startsWith('#'));
  const stanzas = lines.join('\n').split(/\n[ \t]*\n/);
  return stanzas.flatMap((stanza) => {
    const fields = new Map<string, string>();
    for (const field of stanza.matchAll(/^([A-Za-z0-9-]+):[ \t]*(.*(?:\n[ \t].*)*)/gm))
      fields.set((field[1] ?? '').toLowerCase(), (field[2] ?? '').trimEnd());
    const words = (name: string): string[] => (fields.get(name) ?? '').split(/\s+/).filter((word) => word !== '');
    if (!words('types').includes('deb') || /^(no|false|off|without|disable)$/i.test(fields.get('enabled') ?? 'yes'))
      return [];
    return [
      {
        uris: words('uris'),
        suites: words('suites'),
        components: words('components'),
        options: trustOptions((name) => fields.get(name)),
      },
    ];
  });
}

/** Parses a `.list` file: one `deb [options] uri suite component...` a line. */
export function parseOneLineSources(text: string): AptSource[] {
  return text.split('\n').flatMap((line) => {
    const entry = /^\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)/.exec(line);
    if (entry === null) return [];
    const options = new Map(
      (entry[1] ?? '')
        .split(/\s+/)
        .map((option) => [option.split('=')[0]?.toLowerCase() ?? '', option.slice(option.indexOf('=') + 1)]),
    );
    return [
      {
        uris: [entry[2] ?? ''],
        suites: [entry[3] ?? ''],
        components: (entry[4] ?? '').split(/\s+/).filter((word) => word !== ''),
        options: trustOptions((name) => options.get(name)),
      },
    ];
  });
}

/**
 * Reads the machine's own sources below `etcApt` (`/etc/apt`) and names each archive that may carry whole suites once,
 * in the order found: those with a `main` component, without the security archives, which hold updates only.
 */
export async function readAptMirrors(etcApt: string): Promise<AptMirror[]> {
  const folder = path.join(etcApt, 'sources.list.d');
  const files = [
    path.join(etcApt, 'sources.list'),
    ...(await listFolder(folder)).map((name) => path.join(folder, name)),
  ];
  const mirrors = new Map<string, AptMirror>();
  for (const file of files) {
    const text = (await findTextFile(file)) ?? '';
    const sources = file.endsWith('.sources')
      ? parseDeb822Sources(text)
      : file.endsWith('.list')
        ? parseOneLineSources(text)
        : [];
    for (const source of sources) {
      if (
        !source.components.includes('main') ||
        source.suites.every((suite) => /[-/](security|updates|backports)/.test(suite))
      )
        continue;
      for (const uri of source.uris) if (!mirrors.has(uri)) mirrors.set(uri, { uri, options: source.options });
    }
  }
  return [...mirrors.values()];
}

function trustOptions(find: (name: string) => string | undefined): Record<string, string> {
  const options: Record<string, string> = {};
  for (const [name, field] of [
    ['signed-by', 'Signed-By'],
    ['trusted', 'Trusted'],
  ] as const) {
    const value = find(name);
    if (value !== undefined && value !== '') options[field] = value;
  }
  return options;
}

async function listFolder(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).toSorted();
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}
