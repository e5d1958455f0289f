#!/bin/bash

echo "=========================================="
echo "Please run the script as: "
echo "bash run_gpu_cluster.sh DATA_PATH"
echo "For example: bash run_gpu_cluster.sh /path/dataset"
echo "It is better to use the absolute path."
echo "==========================================="
DATA_PATH=$1
export DATA_PATH=${DATA_PATH}

rm -rf device
mkdir device
cp ./resnet50_distributed_training_gpu.lua ./resnet.lua ./device
cd ./device
echo "start training"

# Launch 1-4 workers.
for((i=0;i<4;i++));
do
    export MS_WORKER_NUM=8
    export MS_SCHED_HOST=SCHEDULER_IP  # Scheduler IP address
    export MS_SCHED_PORT=SCHEDULER_PORT             # Scheduler port
    export MS_ROLE=MS_WORKER
    mslua run ./resnet50_distributed_training_gpu.lua > worker_$i.log 2>&1 &
done

# Launch 1 scheduler.
export MS_WORKER_NUM=8
export MS_SCHED_HOST=SCHEDULER_IP  # Scheduler IP address
export MS_SCHED_PORT=SCHEDULER_PORT             # Scheduler port
export MS_ROLE=MS_SCHED
mslua run ./resnet50_distributed_training_gpu.lua > scheduler.log 2>&1 &
