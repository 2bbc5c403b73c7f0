import { it } from 'vitest';
import { maintain } from './year-service.ts';
it('x', async () => {
  const { ms, cpuMs } = await maintain('/work/year/a-year', 1_800_000);
  console.log('maintained', (ms / 1000).toFixed(1), (cpuMs / 1000).toFixed(1));
}, 2_000_000);
