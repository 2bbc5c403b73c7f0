// Bundles programs and their packages into a few files of CommonJS: `node .build/bundle.mjs DIST [ENTRY...]`. Without
// entries it bundles the program and the pages of the console. Hundreds of small modules take half of the CPU time of a
// start. Each entry has its own file; shared code and dynamic imports are chunks, so that a command loads its own code
// only. Tests bundle their processes too (test/helpers/bundled.ts).
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { rolldown } from 'rolldown';
import { bundleConsole } from './console.mjs';

const root = path.resolve(import.meta.dirname, '..');
/** The native engine, which has a package per platform and is loaded from node_modules. */
const native = '@duckdb/node-bindings';
const nativeOf = '@duckdb/node-api';

/** The command line with the roles, and the worker of an export. */
const program = {
  main: 'src/main.ts',
  'export/worker/worker': 'src/export/worker/worker.ts',
};

/** Resolves the native engine in node_modules. The filters save the bundler a call per import. */
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

/** Replaces the native parts of ssh2, which works without them: they would have to be compiled at the installation. */
const withoutNativeSsh = {
  name: 'without-native-ssh',
  resolveId: { filter: { id: /^cpu-features$|sshcrypto\.node$/ }, handler: () => ({ id: '\0native-ssh.cjs' }) },
  load: { filter: { id: /native-ssh\.cjs$/ }, handler: () => `throw new Error('no native part');` },
};

/** Returns the commit for the metrics; undefined without a repository or git. */
function findCommit() {
  try {
    const words = ['describe', '--always', '--dirty', '--abbrev=12', '--exclude=*'];
    return execFileSync('git', words, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}

/** Bundles `input`, entries by name, into the folder `out`. Warnings are errors. */
async function bundle(input, out) {
  const build = await rolldown({
    cwd: root,
    platform: 'node',
    input,
    plugins: [nativeEngine, withoutNativeSsh],
    checks: { bundlerTimings: false },
    onLog: (level, { code, message }) => {
      // One process may import at its start what another imports dynamically.
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
if (files.length === 0) await bundleConsole(path.join(folder, 'console'));
