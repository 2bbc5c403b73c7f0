import { findNames } from '../runtime/files/folder-names.ts';
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { AppError, describeError } from '../runtime/errors.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';

const run = promisify(execFile);

/**
 * How old an archive's index may be, seconds. The rolling suite's own limit is a week; many mirrors lag more, or stand
 * still for a while. The signature is checked all the same, and the program's own version afterwards.
 */
const oldestIndexSeconds = 90 * 86_400;

interface AptFetch {
  readonly package: string;
  /** The suite that has it new enough, as `sid`; never added to the machine's own sources. */
  readonly suite: string;
  readonly component: string;
  /** Tried in order; the first that has the suite and the package is used. */
  readonly mirrors: readonly AptMirror[];
}

/**
 * Downloads one package with the machine's own apt and hands its unpacked tree to `use`, then removes everything.
 * Nothing is installed and no file of the system changes: apt gets a private list of sources, lists folder and cache,
 * and none of the machine's hooks, pins or default release; its proxy and certificate settings stay. Works for any
 * user. Throws `broker_missing` with what apt said when no mirror has the package. The signal ends apt, and the fetch
 * with an error.
 */
export async function fetchWithApt<T>(
  fetch: AptFetch,
  use: (tree: string) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const work = await mkdtemp(path.join(tmpdir(), 'tributary-apt-'));
  try {
    await chmod(work, 0o755);
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
      `apt did not bring ${fetch.package}: ${problems.join('; ') || 'this machine has no package sources'}`,
    );
  } finally {
    await rm(work, { recursive: true, force: true });
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
  // whatever the umask is: apt runs its downloads as the user _apt, who has to reach them
  for (const folder of [work, lists, cache, path.join(cache, 'archives')]) await chmod(folder, 0o755);
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
  await writeFile(sources, fields.join(''));

  // read after the machine's own settings, so that what is cleared here stays cleared
  const settings = path.join(work, 'apt.conf');
  await writeFile(
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
  const file = (await readdir(packages)).find((name) => name.endsWith('.deb'));
  if (file === undefined) throw new Error('apt-get download left no package');
  await run('dpkg-deb', ['-x', path.join(packages, file), tree]);
  return tree;
}

/** A warning of apt's that is no cause of anything: where `_apt` cannot reach a folder, it downloads as root. */
const unsandboxed = /performed unsandboxed/;

/** What a failed command said first: apt marks its lines with E and W, the cause before the consequence. */
function firstWords(error: unknown): string {
  const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n') : [];
  const marked = output.flatMap((line) => /^[EW]: *(.*)/.exec(line)?.[1] ?? []);
  const words = marked.find((line) => !unsandboxed.test(line)) ?? output.at(-1) ?? '';
  return (words === '' ? describeError(error) : words).replace(/[\s.]+$/, '');
}

/** One archive that this machine already trusts: where it is, and the options under which apt trusts it. */
interface AptMirror {
  readonly uri: string;
  /** deb822 fields to carry over (`Signed-By`, `Trusted`), as the machine's own sources have them. */
  readonly options: Readonly<Record<string, string>>;
}

/** One entry of the machine's sources, in either of apt's formats. */
interface AptSource {
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

/** The options of a source under which apt trusts it. */
function trustOptions(find: (name: string) => string | undefined): Record<string, string> {
  const options = ['Signed-By', 'Trusted'].map((field) => [field, find(field.toLowerCase()) ?? ''] as const);
  return Object.fromEntries(options.filter(([, value]) => value !== ''));
}
