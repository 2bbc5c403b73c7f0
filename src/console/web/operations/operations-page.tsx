import { PageParts } from '../parts/page-parts.tsx';
import { AppsPart } from './apps-part.tsx';
import { ServicePart } from './service-part.tsx';
import { UsersPart } from './users-part.tsx';

/** What operators see and change: the service, apps and their tokens, users and their secrets. */
export function OperationsPage() {
  return (
    <PageParts
      title="Operations"
      parts={[
        { path: 'operations', title: 'Service', component: ServicePart },
        { path: 'operations/apps', title: 'Apps', component: AppsPart },
        { path: 'operations/users', title: 'Users', component: UsersPart },
      ]}
    />
  );
}
