import { useState } from 'preact/hooks';
import { path } from '../frame/router.ts';
import { AppHead, AppsCard } from '../parts/apps.tsx';
import { CatalogueCard } from './catalogue-card.tsx';
import { FieldsCard } from './fields-card.tsx';
import { VolumeCard } from './volume-card.tsx';
import { kindsOf, periods, useVolume, type Period } from './volume.ts';

/** What one app has. */
function AppData({ idApp }: { readonly idApp: string }) {
  const [period, setPeriod] = useState<Period>(periods[1]);
  const volume = useVolume(period, idApp);
  return (
    <>
      <AppHead page="data" other="live" idApp={idApp} />
      <div class="stack">
        <VolumeCard volume={volume} period={period} onPeriod={setPeriod} />
        <FieldsCard idApp={idApp} period={period} kinds={kindsOf(volume.data)} />
        <CatalogueCard idApp={idApp} period={period} />
      </div>
    </>
  );
}

/** What all apps have together, and which there are. */
function AllData() {
  const [period, setPeriod] = useState<Period>(periods[1]);
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Data</h1>
      </div>
      <div class="stack">
        <VolumeCard volume={useVolume(period)} period={period} onPeriod={setPeriod} />
        <AppsCard page="data" />
      </div>
    </>
  );
}

/** Apps, their events by day and kind, how full their fields are, what their custom events have in their parameters. */
export function DataPage() {
  const [, idApp] = path.value.split('/');
  return idApp === undefined ? <AllData /> : <AppData key={idApp} idApp={idApp} />;
}
