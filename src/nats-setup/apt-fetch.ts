import { findNames, listNames } from '../runtime/files/folder-names.ts';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { AppError, describeError } from '../runtime/errors.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { makeTemporaryFolder, removeTree, setMode, writeWorkFile } from '../runtime/files/work-files.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';

const run = promisify(execFile);

/** Age limit of an archive's index, s: many mirrors exceed the week of the rolling suite. apt checks the signature. */
const oldestIndexSeconds = 90 * 86_400;

interface AptFetch {
  readonly package: string;
  /** A suite such as `sid`. The machine's sources stay without it. */
  readonly suite: string;
  readonly component: string;
  /** Tried in this order. */
  readonly mirrors: readonly AptMirror[];
}

/**
 * Downloads a package with the machine's apt, calls `use` with its unpacked tree, and removes both. Changes no system
 * file: apt gets its own sources, lists and cache, without hooks, pins or a default release, but with the machine's
 * proxy and certificates. Error: `broker_missing` with apt's message.
 */
export async function fetchWithApt<T>(
  fetch: AptFetch,
  use: (tree: string) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const work = await makeTemporaryFolder('tributary-apt-');
  try {
    await setMode(work, 0o755);
    const problems: string[] = [];
    for (const [index, mirror] of fetch.mirrors.entries()) {
      signal?.throwIfAborted();
      const tree = await download(path.join(work, String(index)), mirror, fetch, signal).catch(
        (error: unknown) => void problems.push(firstWords(error)),
      );
      if (tree !== undefined) return await use(tree);
    }
    throw new AppError(
      'broker_missing',
      `apt did not download ${fetch.package}: ${problems.join('; ') || 'this machine has no package sources'}`,
    );
  } finally {
    await removeTree(work);
  }
}

async function download(
  work: string,
  mirror: AptMirror,
  fetch: AptFetch,
  signal: AbortSignal | undefined,
): Promise<string> {
  const lists = path.join(work, 'lists');
  const packages = path.join(work, 'packages');
  const cache = path.join(work, 'cache');
  const tree = path.join(work, 'tree');
  for (const folder of [path.join(lists, 'partial'), path.join(cache, 'archives', 'partial'), packages, tree])
    await makeFolder(folder);
  // For the user _apt, who downloads, with any umask.
  for (const folder of [work, lists, cache, path.join(cache, 'archives')]) await setMode(folder, 0o755);
  const { stdout: architecture } = await run('dpkg', ['--print-architecture']);

  const sources = path.join(work, 'fetch.sources');
  const stanza = {
    Types: 'deb',
    URIs: mirror.uri,
    Suites: fetch.suite,
    Components: fetch.component,
    Architectures: architecture.trim(),
    ...mirror.options,
  };
  const fields = Object.entries(stanza).map(([name, value]) => `${name}: ${value}\n`);
  await writeWorkFile(sources, fields.join(''));

  // apt reads this after the machine's settings.
  const settings = path.join(work, 'apt.conf');
  await writeWorkFile(
    settings,
    [
      '#clear APT::Update::Pre-Invoke;',
      '#clear APT::Update::Post-Invoke;',
      '#clear APT::Update::Post-Invoke-Success;',
      '#clear Acquire::IndexTargets::deb::DEP-11;',
      '#clear Acquire::IndexTargets::deb::DEP-11-icons;',
      '#clear Acquire::IndexTargets::deb::DEP-11-icons-small;',
      '#clear Acquire::IndexTargets::deb::DEP-11-icons-large;',
      'APT::Default-Release "";',
      'Acquire::Languages "none";',
      'Acquire::Retries "3";',
      `Acquire::Min-ValidTime "${oldestIndexSeconds}";`,
      `Dir::Etc::SourceList "${sources}";`,
      'Dir::Etc::SourceParts "-";',
      'Dir::Etc::Preferences "-";',
      'Dir::Etc::PreferencesParts "-";',
      `Dir::State::Lists "${lists}/";`,
      `Dir::Cache "${cache}/";`,
      '',
    ].join('\n'),
  );
  const apt = (arguments_: readonly string[]) =>
    run('apt-get', ['-c', settings, '-q', ...arguments_], {
      cwd: packages,
      maxBuffer: 16 * 1024 * 1024,
      timeout: 600_000,
      signal,
    });
  await apt(['update', '-o', 'APT::Update::Error-Mode=any']);
  await apt(['download', fetch.package]);
  const file = (await listNames(packages)).find((name) => name.endsWith('.deb'));
  if (file === undefined) throw new Error('apt-get download left no package');
  await run('dpkg-deb', ['-x', path.join(packages, file), tree]);
  return tree;
}

/** Returns the first error or warning of a failed command. apt warns of unsandboxed downloads in other cases too. */
function firstWords(error: unknown): string {
  const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n') : [];
  const marked = output.flatMap((line) => /^[EW]: *(.*)/.exec(line)?.[1] ?? []);
  const words = marked.find((line) => !line.includes('performed unsandboxed')) ?? output.at(-1) ?? '';
  return (words === '' ? describeError(error) : words).replace(/[\s.]+$/, '');
}

/** An archive that this machine trusts. */
interface AptMirror {
  readonly uri: string;
  /** deb822 fields `Signed-By` and `Trusted` of the machine's sources. */
  readonly options: Readonly<Record<string, string>>;
}

interface AptSource {
  readonly uris: readonly string[];
  readonly suites: readonly string[];
  readonly components: readonly string[];
  readonly options: Readonly<Record<string, string>>;
}

/** Parses a `.sources` file (deb822) without its disabled and source-only stanzas. */
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

/** Parses a `.list` file: lines of `deb [options] uri suite component...`. */
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

/** Lists the archives of the machine's sources below `etcApt` with a `main` component, except those of updates only. */
export async function readAptMirrors(etcApt: string): Promise<AptMirror[]> {
  const folder = path.join(etcApt, 'sources.list.d');
  const files = [
    path.join(etcApt, 'sources.list'),
    ...(await findNames(folder)).toSorted().map((name) => path.join(folder, name)),
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
  const options = ['Signed-By', 'Trusted'].map((field) => [field, find(field.toLowerCase()) ?? ''] as const);
  return Object.fromEntries(options.filter(([, value]) => value !== ''));
}
