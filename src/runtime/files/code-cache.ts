/**
 * V8's compiled code of the program's bundle, kept beside its files: a process of the program starts in four fifths of
 * the processor time.
 *
 * In: files of CommonJS and, beside each, `FILE.cache`, made by the build. Out: the same modules as without.
 * Invariant: a cache that is missing, older than its file, or another V8's, also by its flags (a heap's size is one), is
 * left out, and the file compiled.
 * Crash: nothing is written but by the build.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import path from 'node:path';
import vm from 'node:vm';

/** A module that is being loaded, as Node's loader of CommonJS calls it; undocumented, and so since Node's beginnings. */
interface Loaded {
  exports: unknown;
}
type Compile = (this: Loaded, code: string, file: string, ...more: readonly unknown[]) => unknown;
type ModuleFunction = (this: unknown, ...words: readonly unknown[]) => unknown;
const compileName = '_compile';
const loader = Module.prototype as unknown as Record<typeof compileName, Compile>;

const cacheOf = (file: string): string => `${file}.cache`;

function readCache(file: string): Buffer | undefined {
  try {
    const cache = cacheOf(file);
    // V8 compares no more of a source than its length: one that was changed by hand may have the same.
    return statSync(cache).mtimeMs >= statSync(file).mtimeMs ? readFileSync(cache) : undefined;
  } catch {
    return undefined;
  }
}

function compileScript(code: string, file: string, cachedData?: Buffer): vm.Script {
  return new vm.Script(Module.wrap(code), {
    filename: file,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    ...(cachedData === undefined ? {} : { cachedData }),
  });
}

function evaluate(module: Loaded, script: vm.Script, file: string): unknown {
  const run = script.runInThisContext() as ModuleFunction;
  return run.call(module.exports, module.exports, createRequire(file), module, file, path.dirname(file));
}

/** Loads modules of the bundle with their caches from now on, where they have one. */
export function useCodeCache(): void {
  const compile = loader[compileName];
  loader[compileName] = function compileWithCache(code, file, ...more) {
    const cachedData = readCache(file);
    if (cachedData === undefined) return compile.call(this, code, file, ...more);
    return evaluate(this, compileScript(code, file, cachedData), file);
  };
}

/**
 * Makes the caches of all modules of a folder: loads each, so that what runs at a start is compiled too. For the build,
 * whose process ends afterwards.
 */
export function makeCodeCache(folder: string): void {
  const scripts = new Map<string, vm.Script>();
  const compile = loader[compileName];
  loader[compileName] = function compileAndKeep(code, file, ...more) {
    if (path.dirname(file) !== folder) return compile.call(this, code, file, ...more);
    const script = compileScript(code, file);
    scripts.set(file, script);
    return evaluate(this, script, file);
  };
  const load = createRequire(path.join(folder, 'any.js'));
  const files = readdirSync(folder).flatMap((name) => (name.endsWith('.js') ? [path.join(folder, name)] : []));
  // This process has loaded some already.
  for (const file of files) delete load.cache[file];
  for (const file of files) load(file);
  for (const [file, script] of scripts) writeFileSync(cacheOf(file), script.createCachedData());
}
