/**
 * The rules of the house that can be read off the source text: who may import whom, where each library and each
 * temporary table lives, what files and folders may be called, how long a file may be. docs/ARCHITECTURE.md says why.
 */

/** A source file by its path below `src`, with forward slashes. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

const foundation = ['runtime', 'datasets', 'config'];
/** The folders of the stores: data rests there. */
export const stores = [
  'stream',
  'lake',
  'reports',
  'access',
  'segments',
  'titles',
  'webhooks',
  'schedules',
  'enrichment',
  'refusals',
  'live',
  'receipts',
];
const stages = ['ingest', 'compact', 'find', 'operate', 'export', 'console', 'health'];
/** Composition: may import anything; only composition imports it. */
const composition = ['main', 'app', 'service', 'cli', 'demo'];

/** The rooms each room may import from, itself apart. `config` below composition and the set-up: its types only. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  runtime: [],
  config: ['runtime'],
  datasets: ['runtime'],
  setup: ['runtime', 'config'],
  reference: [],
  sdk: [],
  // What a caller does against a running service: it meets the stages by HTTP alone.
  client: ['runtime', 'datasets'],
  ...Object.fromEntries(stores.map((store) => [store, foundation])),
  ...Object.fromEntries(stages.map((stage) => [stage, [...foundation, ...stores]])),
  ...Object.fromEntries(
    composition.map((room) => [
      room,
      [
        ...foundation,
        ...stores,
        ...stages,
        'setup',
        'reference',
        'sdk',
        'client',
        ...composition.filter((other) => other !== 'main'),
      ],
    ]),
  ),
};

/**
 * The walls inside rooms: the sub-rooms that a sub-room may import from; `.` is the room's own floor. A sub-room that
 * is not named has no walls.
 */
const walls: Readonly<Record<string, readonly string[]>> = {
  // The log is a Delta table like any other: it knows no dataset and nothing of what its files hold.
  'lake/log': ['lake/sql'],
  'lake/sql': [],
  'lake/files': ['lake/log', 'lake/sql'],
  'lake/batch': ['lake/log', 'lake/sql', 'lake/files'],
  'lake/find': ['lake/log', 'lake/sql', 'lake/files', 'lake/batch'],
  // Three programs: what two of them share lies in jobs.
  'export/api': ['export/jobs'],
  'export/jobs': [],
  'export/worker': ['export/jobs'],
  'export/notify': [],
  // What operators do by the API.
  'export/operations': ['export/api'],
  // Makes requests as the API does, by its rules.
  'export/schedules': ['export/api', 'export/jobs'],
  // The pages run in the browser, and the server knows them as files only.
  'console/.': [],
  'console/web': [],
  'compact/batch': ['compact/.'],
  'compact/position': ['compact/.', 'compact/batch'],
  'compact/seal': ['compact/.'],
};

/**
 * The doors of sub-rooms: the files that those outside may import. A sub-room that is not named is open.
 */
const doors: Readonly<Record<string, readonly string[]>> = {
  // The steps of a batch have an order, which batch-tables keeps; the others are its parts, or work on it.
  'lake/batch': ['batch-tables', 'recent-keys', 'known-rows', 'spool-lines', 'key-set'],
};

/** Temporary tables of the engine that only the files of their home may name in SQL. */
const ownTables = {
  home: /^lake\/batch\//,
  inSql:
    /\b(?:FROM|JOIN|INTO|TABLE|UPDATE|EXISTS)\s+(batch|dropped|recent_keys|sliced_keys|batch_keys|stored_before|stored_rows|asked|wanted|accepted)\b/,
};

/** One library, one home. A library that is not here has none yet. */
const homes: readonly { readonly library: RegExp; readonly home: RegExp }[] = [
  { library: /^@nats-io\//, home: /^stream\// },
  { library: /^@duckdb\//, home: /^(lake\/sql\/(duckdb|read-only-engine)|export\/worker\/query-engine)\.ts$/ },
  {
    library: /^fastify$|^@fastify\//,
    home: /^(ingest|export\/api|reports|health|console)\/([a-z-]+-)?(routes|server)\.ts$/,
  },
  { library: /^ajv/, home: /^datasets\/schema-registry\.ts$/ },
  { library: /^pino$/, home: /^runtime\/logger\.ts$/ },
  { library: /^prom-client$/, home: /^runtime\/metrics\.ts$/ },
  { library: /^archiver$/, home: /^reports\// },
  { library: /^(preact|@preact\/|uplot)/, home: /^console\/web\// },
  { library: /^commander$/, home: /^cli\/program\.ts$/ },
  { library: /^string-width$/, home: /^cli\/answers\.ts$/ },
  { library: /^mmdb-lib$/, home: /^enrichment\/geo-database\.ts$/ },
  { library: /^my-ua-parser$/, home: /^enrichment\/enrichment\.ts$/ },
];

/** Who may import `node:fs`. Everybody else asks `runtime/files`, where each access has a name, or a store. */
const fileOwners = /^runtime\/(files|store)\//;

const bannedFolders = ['utils', 'util', 'common', 'helpers', 'lib', 'services', 'shared', 'misc'];
const bannedFiles = ['types', 'index', 'utils', 'util', 'helpers', 'common'];
const maxLines = 400;

interface Import {
  readonly from: string;
  readonly typeOnly: boolean;
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
}

/** Reads the import and re-export lines of a file, dynamic imports of a literal included. */
export function readImports(text: string): Import[] {
  const code = withoutComments(text);
  const found: Import[] = [];
  for (const match of code.matchAll(/^\s*(?:import|export)\s+(type\s+)?(?:([^'"`;]*?)\s*from\s*)?['"]([^'"]+)['"]/gm)) {
    const names = /^\{(.*)\}$/s
      .exec(match[2]?.trim() ?? '')?.[1]
      ?.split(',')
      .map((name) => name.trim())
      .filter((name) => name !== '');
    const typeOnly =
      match[1] !== undefined ||
      (names !== undefined && names.length > 0 && names.every((name) => name.startsWith('type ')));
    found.push({ from: match[3] ?? '', typeOnly });
  }
  for (const match of code.matchAll(/\bimport\(\s*['"]([^'"]+)['"]\s*\)/g))
    found.push({ from: match[1] ?? '', typeOnly: false });
  return found;
}

/** The room of a path: its first folder, or its own name at the top. */
function roomOf(path: string): string {
  return path.split('/')[0]?.replace(/\.tsx?$/, '') ?? '';
}

/** The room and the first folder inside it; `.` for a file on the room's floor. */
function subRoomOf(path: string): string {
  const [room = '', folder, ...rest] = path.split('/');
  return rest.length === 0 ? `${room}/.` : `${room}/${folder ?? ''}`;
}

/** What a wall inside a room, or the log's ignorance of datasets, forbids. */
function checkWall(file: string, target: string, from: string): string | undefined {
  const [here, there] = [subRoomOf(file), subRoomOf(target)];
  if (here === there) return undefined;
  const name = target.split('/').at(-1)?.replace(/\.ts$/, '') ?? '';
  if (doors[there]?.includes(name) === false) return `imports ${from}, which is a part of ${there} and no door to it`;
  const allowed = walls[here];
  if (roomOf(file) === roomOf(target))
    return allowed === undefined || allowed.includes(there)
      ? undefined
      : `imports ${from}: ${here} must not import ${there}`;
  if (here === 'console/web')
    return `imports ${from}: what runs in the browser knows nothing of the service's own code`;
  if (here === 'lake/log' && roomOf(target) !== 'runtime') return `imports ${from}: ${here} knows runtime only`;
  return undefined;
}

/** Resolves a relative import against the file it stands in; undefined when it leaves `src`. */
function resolveImport(file: string, relative: string): string | undefined {
  const parts = file.split('/').slice(0, -1);
  for (const part of relative.split('/')) {
    if (part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.pop() === undefined) return undefined;
  }
  return parts.join('/');
}

function checkImport(file: string, { from, typeOnly }: Import): string | undefined {
  if (!from.startsWith('.')) {
    if (/^(node:)?fs(\/promises)?$/.test(from) && !fileOwners.test(file))
      return `imports ${from}, and owns no files: what it needs has a name in runtime/files`;
    const home = homes.find(({ library }) => library.test(from));
    // a type says nothing about which library does the work, but it ties the file to it all the same
    return home === undefined || home.home.test(file)
      ? undefined
      : `imports ${from}, whose home is ${home.home.source}`;
  }
  if (!/\.tsx?$/.test(from)) return `imports ${from} without .ts at its end`;
  const target = resolveImport(file, from);
  if (target === undefined) return `imports ${from}, outside src`;
  const wall = checkWall(file, target, from);
  if (wall !== undefined) return wall;
  const [room, other] = [roomOf(file), roomOf(target)];
  if (room === other) return undefined;
  const allowed = mayImport[room];
  if (allowed === undefined) return `is in ${room}, a room the import rules do not know`;
  if (!allowed.includes(other)) return `imports ${from}: ${room} must not import ${other}`;
  if (other === 'config' && !typeOnly && !composition.includes(room))
    return `imports ${from}: ${room} may import config's types only`;
  return undefined;
}

function checkName(path: string): string[] {
  const [name = '', ...folders] = path.split('/').toReversed();
  const base = name.replace(/(\.d)?\.tsx?$/, '');
  return [
    ...folders
      .filter((folder) => bannedFolders.includes(folder))
      .map((folder) => `lies in a folder called ${folder}, which says nothing`),
    ...(bannedFiles.includes(base) ? [`is called ${name}, which says nothing`] : []),
    ...(/^[a-z0-9]+(-[a-z0-9]+)*$/.test(base) ? [] : [`is called ${name}: names are kebab-case`]),
  ];
}

function checkText(path: string, text: string): string[] {
  const code = withoutComments(text);
  const lines = text.split('\n').length - 1;
  const table = ownTables.home.test(path) ? undefined : ownTables.inSql.exec(code)?.[1];
  return [
    ...(table === undefined
      ? []
      : [`names ${table} in SQL, a table of lake/batch: batch-tables.ts has a method for it`]),
    ...(lines > maxLines ? [`has ${lines} lines, more than ${maxLines}`] : []),
    ...(/^\s*export\s+default\b/m.test(code) ? ['has a default export'] : []),
    ...(/^\s*export\s+\*/m.test(code) ? ['re-exports everything of another file'] : []),
    ...(/^\s*(export\s+)?(const\s+)?enum\s/m.test(code) ? ['has an enum'] : []),
    ...(/\bmkdir(Sync)?\([^;]*\brecursive:/.test(code)
      ? ['makes folders by the recursion of mkdir, which never ends below /proc: runtime/files/make-folder.ts does']
      : []),
    // package-files.ts has one setting from the environment: datasets are compiled when their module is loaded.
    ...(!['main.ts', 'runtime/processes/role-process.ts', 'runtime/files/package-files.ts'].includes(path) &&
    /\bprocess\.(argv|exit|exitCode|env|stdout|stderr|stdin|cwd|chdir)\b/.test(code)
      ? ['touches the process, which only main.ts and a role’s entry do']
      : []),
  ];
}

/**
 * Lists the files that stand in a circle of imports, types included, each as `path imports path`. What is imported when it
 * is needed closes none.
 */
export function findCircles(files: readonly SourceFile[]): string[] {
  const imports = new Map(
    files.map(({ path, text }) => {
      const lines = readImports(text.replace(/\bimport\(/g, ''));
      return [
        path,
        new Set(lines.flatMap(({ from }) => (from.startsWith('.') ? (resolveImport(path, from) ?? []) : []))),
      ];
    }),
  );
  // What imports nothing that is left, or is imported by nothing that is left, is in no circle.
  for (let before = -1; before !== imports.size;) {
    before = imports.size;
    const imported = new Set([...imports.values()].flatMap((targets) => [...targets]));
    for (const [path, targets] of imports)
      if (!imported.has(path) || ![...targets].some((target) => imports.has(target))) imports.delete(path);
  }
  return [...imports].flatMap(([path, targets]) =>
    [...targets].filter((target) => imports.has(target)).map((target) => `${path} imports ${target}`),
  );
}

/** Names every breach of the rules, as `path: what`. */
export function findBreaches(files: readonly SourceFile[]): string[] {
  return files.flatMap(({ path, text }) => {
    const imports = readImports(text).map((line) => checkImport(path, line));
    return [...imports.filter((breach) => breach !== undefined), ...checkName(path), ...checkText(path, text)].map(
      (breach) => `${path}: ${breach}`,
    );
  });
}
