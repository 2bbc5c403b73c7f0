/**
 * Rules that are checked on the source text: permitted imports, the folder of each library and each temporary table,
 * names of files and folders, the length of a file. docs/ARCHITECTURE.md has the reasons.
 */

/** A source file by its path below `src`, with forward slashes. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

const foundation = ['runtime', 'datasets', 'config'];
/** Folders of the stores, which keep data on disk. */
export const stores = [
  'stream',
  'lake',
  'reports',
  'access',
  'segments',
  'titles',
  'destinations',
  'webhooks',
  'schedules',
  'enrichment',
  'audit',
  'refusals',
  'live',
  'receipts',
];
const stages = ['ingest', 'compact', 'event-lookup', 'admin', 'export', 'console', 'ops'];
/** Composition: may import anything; only composition imports it. */
const composition = ['main', 'composition', 'service', 'cli', 'demo'];

/**
 * Folders that each folder may import from, besides itself. `config` below composition and the set-up: its types only.
 */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  runtime: [],
  config: ['runtime'],
  datasets: ['runtime'],
  'nats-setup': ['runtime', 'config'],
  reference: [],
  sdk: [],
  // The client uses a running service: it reaches the stages by HTTP alone.
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
        'nats-setup',
        'reference',
        'sdk',
        'client',
        ...composition.filter((other) => other !== 'main'),
      ],
    ]),
  ),
};

/**
 * Import rules within folders: the subfolders that a subfolder may import from; `.` means the files directly in the
 * folder. Subfolders that are absent here have no rules.
 */
const walls: Readonly<Record<string, readonly string[]>> = {
  // The log is an ordinary Delta table: it may not use datasets or the content of its files.
  'lake/log': ['lake/sql'],
  'lake/sql': [],
  'lake/files': ['lake/log', 'lake/sql'],
  'lake/batch': ['lake/log', 'lake/sql', 'lake/files'],
  'lake/event-index': ['lake/log', 'lake/sql', 'lake/files', 'lake/batch'],
  // Three programs: their shared code is in jobs.
  'export/api': ['export/jobs'],
  'export/jobs': [],
  'export/worker': ['export/jobs'],
  'export/notify': [],
  // Retries as messages are.
  'export/deliver': ['export/notify'],
  // Operators' calls of the API.
  'export/admin-api': ['export/api'],
  // Creates requests as the API does, by its rules.
  'export/schedules': ['export/api', 'export/jobs'],
  // The pages run in the browser; the server uses them as files only.
  'console/.': [],
  'console/web': [],
  'compact/batch': ['compact/.'],
  'compact/position': ['compact/.', 'compact/batch'],
  'compact/seal': ['compact/.'],
};

/** Files of subfolders that code outside may import. Subfolders that are absent here are open. */
const doors: Readonly<Record<string, readonly string[]>> = {
  // The steps of a batch have an order, which batch-tables keeps; the other files implement steps.
  'lake/batch': ['batch-tables', 'idempotency-keys', 'natural-key-cache', 'spool-lines', 'key-set'],
};

/** Temporary tables of the engine that only the files of their folder may name in SQL. */
const ownTables = {
  home: /^lake\/batch\//,
  inSql:
    /\b(?:FROM|JOIN|INTO|TABLE|UPDATE|EXISTS)\s+(batch|dropped|recent_keys|sliced_keys|batch_keys|stored_before|stored_rows|asked|wanted|accepted)\b/,
};

/** One folder per library. A library that is absent here has none yet. */
const homes: readonly { readonly library: RegExp; readonly home: RegExp }[] = [
  { library: /^@nats-io\//, home: /^stream\// },
  { library: /^@duckdb\//, home: /^(lake\/sql\/(duckdb|read-only-engine)|export\/worker\/query-engine)\.ts$/ },
  {
    library: /^fastify$|^@fastify\//,
    home: /^(ingest|export\/api|reports|ops|console)\/([a-z-]+-)?(routes|server)\.ts$/,
  },
  { library: /^ajv/, home: /^datasets\/schema-registry\.ts$/ },
  { library: /^pino$/, home: /^runtime\/logger\.ts$/ },
  { library: /^prom-client$/, home: /^runtime\/metrics\.ts$/ },
  { library: /^@aws-sdk\//, home: /^runtime\/store\/s3-bucket\.ts$/ },
  // Loaded on demand: a process without a collector of traces pays nothing.
  { library: /^@opentelemetry\//, home: /^runtime\/tracing\/open-telemetry\.ts$/ },
  { library: /^ssh2$/, home: /^export\/deliver\/sftp-drop\.ts$/ },
  // Loaded for the first sign-in by a provider.
  { library: /^openid-client$/, home: /^console\/oidc-client\.ts$/ },
  { library: /^archiver$/, home: /^reports\// },
  { library: /^(preact|@preact\/)/, home: /^console\/web\// },
  { library: /^commander$/, home: /^cli\/program\.ts$/ },
  { library: /^string-width$/, home: /^cli\/human-output\.ts$/ },
  { library: /^mmdb-lib$/, home: /^enrichment\/geo-database\.ts$/ },
  { library: /^my-ua-parser$/, home: /^enrichment\/enrichment\.ts$/ },
];

/** The only importers of `node:fs`. All others use the named functions of `runtime/files`, or a store. */
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

/** Returns the top folder of a path, or the name of a file at the top. */
function roomOf(path: string): string {
  return path.split('/')[0]?.replace(/\.tsx?$/, '') ?? '';
}

/** Returns the top folder and the first folder inside it; `.` for a file directly in the top folder. */
function subRoomOf(path: string): string {
  const [room = '', folder, ...rest] = path.split('/');
  return rest.length === 0 ? `${room}/.` : `${room}/${folder ?? ''}`;
}

/** Reports an import that the rules within a folder forbid. */
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

/** Resolves a relative import against its file; undefined if it is outside `src`. */
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
    // an imported type also ties a file to its library
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
  if (allowed === undefined) return `is in ${room}, a folder without import rules`;
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
      .map((folder) => `is in a folder with the vague name ${folder}`),
    ...(bannedFiles.includes(base) ? [`has the vague name ${name}`] : []),
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
    // s3-folders.ts passes the credentials of a bucket on to the worker of an export, which has no other variable.
    ...(![
      'main.ts',
      'runtime/processes/role-process.ts',
      'runtime/files/package-files.ts',
      'runtime/store/s3-folders.ts',
    ].includes(path) && /\bprocess\.(argv|exit|exitCode|env|stdout|stderr|stdin|cwd|chdir)\b/.test(code)
      ? ['touches the process, which only main.ts and a role’s entry do']
      : []),
  ];
}

/** Lists the files of import cycles, types included, each as `path imports path`. Dynamic imports do not count. */
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
  // A file that imports no remaining file, or that no remaining file imports, is not in a cycle.
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

/** Lists every violation of the rules, as `path: message`. */
export function findBreaches(files: readonly SourceFile[]): string[] {
  return files.flatMap(({ path, text }) => {
    const imports = readImports(text).map((line) => checkImport(path, line));
    return [...imports.filter((breach) => breach !== undefined), ...checkName(path), ...checkText(path, text)].map(
      (breach) => `${path}: ${breach}`,
    );
  });
}
