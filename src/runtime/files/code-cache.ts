/**
 * V8's compiled code of the program's bundle, kept beside its files: a process of the program starts in four fifths of
 * the processor time.
 *
 * In: files of CommonJS and, beside each, `FILE.cache`, made by the build. Out: the same modules as without.
 * Invariant: a cache that is missing, of another source, or of another V8 or other flags of it (such as the size of the
 * heap) is ignored, and the file compiled. A cache begins with the SHA-256 of its source: V8 compares lengths only, and
 * packages and copies do not keep times.
 * Crash: nothing is written but by the build.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
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

const hashOf = (code: string): Buffer => createHash('sha256').update(code).digest();

function readCache(file: string, code: string): Buffer | undefined {
  try {
    const cache = readFileSync(cacheOf(file));
    return hashOf(code).equals(cache.subarray(0, 32)) ? cache.subarray(32) : undefined;
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
    const cachedData = readCache(file, code);
    if (cachedData === undefined) return compile.call(this, code, file, ...more);
    return evaluate(this, compileScript(code, file, cachedData), file);
  };
}

/**
 * Makes the caches of all modules of a folder: loads each, so that what runs at a start is compiled too. For the build,
 * whose process ends afterwards.
 */
export function makeCodeCache(folder: string): void {
  const scripts = new Map<string, readonly [code: string, script: vm.Script]>();
  const compile = loader[compileName];
  loader[compileName] = function compileAndKeep(code, file, ...more) {
    if (path.dirname(file) !== folder) return compile.call(this, code, file, ...more);
    const script = compileScript(code, file);
    scripts.set(file, [code, script]);
    return evaluate(this, script, file);
  };
  const load = createRequire(path.join(folder, 'any.js'));
  const files = readdirSync(folder).flatMap((name) => (name.endsWith('.js') ? [path.join(folder, name)] : []));
  // This process has loaded some already.
  for (const file of files) delete load.cache[file];
  for (const file of files) load(file);
  for (const [file, [code, script]] of scripts) {
    writeFileSync(cacheOf(file), Buffer.concat([hashOf(code), script.createCachedData()]));
  }
}
