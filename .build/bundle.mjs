// Bundles programs with all that they import, packages too, into a few files of CommonJS: `node .build/bundle.mjs DIST`
// makes the program that `make build` leaves in DIST, the pages of the console with it; with files behind it, these are the entries. Opening, linking and
// compiling hundreds of small modules took half of the CPU time in which a process of the program starts.
//
// Each entry has its own file; what several share, and what is imported when it is needed, are chunks. So a command
// loads its own code only. Tests bundle the processes that they start in the same way
// (test/helpers/bundled.ts).
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { rolldown } from 'rolldown';
import { bundleConsole } from './console.mjs';

const root = path.resolve(import.meta.dirname, '..');
/** Holds the native engine, in a package for each platform, and is therefore loaded from node_modules. */
const native = '@duckdb/node-bindings';
const nativeOf = '@duckdb/node-api';

/** The processes of the program: the command line and the roles, the worker of an export. */
const program = {
  main: 'src/main.ts',
  'export/worker/worker': 'src/export/worker/worker.ts',
};

/** Gives the native engine its place as npm has installed it. The filters keep the bundler from asking about each import. */
const nativeEngine = {
  name: 'native-engine',
  resolveId: { filter: { id: new RegExp(`^${native}$`) }, handler: (id) => ({ id: `\0${id}.cjs` }) },
  load: {
    filter: { id: new RegExp(`${native}\\.cjs$`) },
    handler: () => `const { createRequire } = require('node:module');
      const packages = createRequire(__filename);
      module.exports = createRequire(packages.resolve('${nativeOf}'))('${native}');`,
  },
};

/** The commit that is built, for the metrics; undefined where there is no repository, or no git. */
function findCommit() {
  try {
    const words = ['describe', '--always', '--dirty', '--abbrev=12', '--exclude=*'];
    return execFileSync('git', words, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}

/** Bundles `input`, entries by the names of their files, into the folder `out`. A warning is an error, but for one. */
async function bundle(input, out) {
  const build = await rolldown({
    cwd: root,
    platform: 'node',
    input,
    plugins: [nativeEngine],
    // How long it takes says something of the machine only.
    checks: { bundlerTimings: false },
    onLog: (level, { code, message }) => {
      // What one process loads at its start another may load when it is needed.
      if (level === 'warn' && code !== 'INEFFECTIVE_DYNAMIC_IMPORT') throw new Error(message);
    },
  });
  await build.write({
    dir: out,
    format: 'cjs',
    entryFileNames: '[name].js',
    chunkFileNames: 'chunks/[name].js',
    sourcemap: true,
  });
  await build.close();
  writeFileSync(path.join(out, 'package.json'), `${JSON.stringify({ type: 'commonjs', commit: findCommit() })}\n`);
}

const [out = 'dist', ...files] = process.argv.slice(2);
const given = Object.fromEntries(files.map((file) => [path.parse(file).name, file]));
const folder = path.resolve(out);
await bundle(files.length === 0 ? program : given, folder);
if (files.length === 0) {
  await bundleConsole(path.join(folder, 'console'));
}
