import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { cacheFolder } from '../../src/setup/find-nats-server.ts';

/** The engines that Python's packages bring, of the versions that were tried. */
const packages = ['deltalake==1.6.6', 'pandas==3.1.1', 'polars==2.1.0', 'pyarrow==26.0.1'];

/**
 * Path of a Python that has delta-rs, pandas, Polars and PyArrow: an environment of its own in the cache folder, made
 * and filled by the first call. Undefined, with a notice, where there is no Python, or no way to its packages.
 */
export async function findPythonEngines(): Promise<string | undefined> {
  const folder = path.join(cacheFolder(process.env), 'test-python', packages.join('_'));
  const python = path.join(folder, 'bin', 'python');
  if (existsSync(path.join(folder, 'complete'))) return python;
  try {
    await rm(folder, { recursive: true, force: true });
    execFileSync('python3', ['-m', 'venv', folder], { stdio: 'pipe' });
    execFileSync(python, ['-m', 'pip', 'install', '--quiet', '--no-compile', ...packages], {
      stdio: 'pipe',
      timeout: 600_000,
    });
    execFileSync(
      python,
      ['-c', `import deltalake, pandas, polars; open(${JSON.stringify(path.join(folder, 'complete'))}, 'w').close()`],
      { stdio: 'pipe' },
    );
    return python;
  } catch (error) {
    process.stderr.write(
      `skipped: no Python with ${packages.join(', ')} can be had here (${String(error).split('\n')[0]})\n`,
    );
    return undefined;
  }
}
