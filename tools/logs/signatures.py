"""What lines of a failing SGLang server mean: one row for each family of messages.

Someone who met a new failure adds a row here and a case under tests/cases/own, and is done. Kinds and actions are those
of the diagnosis contract (docs/diagnosis.md). Order matters: of the rows that fit a line the first one counts, so the
narrow ones stand before the wide ones. Nothing here may name a model, a number or a path of one particular log.
"""

from __future__ import annotations

from optagent.tools.logs.signature import GPU_OOM, Signature, Weight

FRACTION = (
    Signature(
        r"(?i)leaves? no (?:gpu )?memory for the kv|(?:increase|raise) [`'-]*mem[-_]fraction[-_]static"
        r"|minimum viable =",
        "memory-fraction-too-low", "raise-memory-fraction",
        proves="the weights alone take more than the static share",
        hints="that memory has run out: the rest of it is free, only not for the KV pool",
        remedy="raise --mem-fraction-static above what the weights take",
        versions="0.1-0.5.23", source="SGLang: model_runner, kv_cache_configurator",
    ),
    Signature(
        r"larger than the profiled value (?:-\d|0\b)",
        "memory-fraction-too-low", "raise-memory-fraction",
        proves="the KV pool was sized to nothing",
        remedy="raise --mem-fraction-static above what the weights take",
        versions="0.5", source="SGLang: kv_cache_configurator", alone=True,
    ),
)  # fmt: skip

MEMORY = (
    Signature(
        r"No space left for only one request|max_running_requests? (?:is|=) ?(?:zero|0\b)"
        r"|(?i:(?:stored|held|fit) in (?:the )?kv cache|kv (?:cache )?pool.*(?:cannot hold|too small)"
        r"|req_to_token_pool.*(?:full|not enough))"
        r"|(?i:mamba|state).*(?:cache|pool|size).*(?:too small|not enough|exhausted|is zero"
        r"|must be (?:greater|at least))",
        "kv-pool-too-small", "raise-memory-fraction",
        proves="the KV pool exists and cannot hold what is asked of it",
        remedy="give the pool more room, or ask for shorter contexts and fewer requests",
        versions="0.4-0.5", source="SGLang: schedule_batch, memory pools", retryable=True,
    ),
    Signature(
        r"(?:Prefill|Decode) out of memory\. Try to lower",
        "kv-accounting", "install-or-upgrade",
        proves="the allocator of KV tokens gave up",
        hints="CUDA memory: it is not about that; whether tokens were short shows in the two counts that follow",
        remedy="tokens were there, so the pool's books are wrong: another release or page size",
        versions="0.4-0.5.23", source="SGLang: mem_cache/allocation", alone=True,
    ),
    Signature(
        r"(?:Error|Exception)\b.*(?:memory|pool) leak detected|leaked_\w*pages|(?i:double free of"
        r"|negative ref.*kv)",
        "kv-accounting", "install-or-upgrade",
        proves="more or fewer KV tokens are accounted for than exist",
        hints="that GPU memory leaks",
        remedy="a defect of the bookkeeping: another release, page size, or without the feature that came last",
        versions="0.4-0.5.6; later only a warning", source="SGLang: scheduler, invariant_checker",
    ),
    Signature(
        r"(?i)not enough host memory|hicache.*(?:not enough|exceeds).*memory",
        "host-memory", "lower-memory",
        proves="the host cache was asked to be larger than the free host memory",
        hints="GPU memory",
        remedy="a smaller --hicache-size or --hicache-ratio, or more host memory",
        versions="0.4.5-0.5.23", source="SGLang: memory_pool_host",
    ),
    Signature(
        r"(?i)Out of memory: Kill|oom-kill|\bOOMKilled\b|memory cgroup out of memory|killed by the oom",
        "host-memory", "fix-environment",
        proves="the operating system killed a process for its use of host memory",
        remedy="give the host or container more memory, or offload and pin less of it",
        source="Linux kernel, kubelet", alone=True,
    ),
    Signature(
        r"(?i)DefaultCPUAllocator|cannot allocate memory|can't allocate memory|std::bad_alloc"
        r"|cudaHost(?:Alloc|Register)|cudaMallocHost|insufficient shared memory|unable to (?:open|mmap"
        r"|resize|write to).*(?:shm|shared|</torch_)"
        r"|no space left on device.*shm|shm.*no space left on device|(?:^|[ .])(?-i:MemoryError)\b"
        r"|failed to map segment",
        "host-memory", "fix-environment",
        proves="host memory, pinned memory or /dev/shm ran out",
        hints="GPU memory",
        remedy="give the host or container more memory or a larger /dev/shm, or offload and pin less of it",
        source="PyTorch, C++ runtime", alone=True,
    ),
    Signature(
        r"(?i)resource temporarily unavailable|can't start new thread|pthread_create failed"
        r"|libgomp: thread creation failed",
        "host-memory", "fix-environment",
        proves="the system gave no more threads or no memory for their stacks",
        hints="GPU memory",
        remedy="raise the limits of the process or container: memory, address space (ulimit -v), processes (ulimit -u, pids)",
        source="Linux, Python",
    ),
    Signature(
        r"CUDA error: out of memory",
        GPU_OOM, "lower-memory",
        proves="a call of the CUDA driver found no memory",
        hints="that GPU memory ran out: pinning host memory fails with the same words",
        remedy="claim less GPU memory, or switch off offloading to pinned host memory",
        source="CUDA runtime through PyTorch", weight=Weight.SPECIFIC,
    ),
    Signature(
        r"(?:CUDA|HIP|XPU|NPU|MUSA|GPU) out of memory|OutOfMemoryError|NVML_ERROR_NO_MEMORY"
        r"|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|hipErrorOutOfMemory"
        r"|Cuda failure.*out of memory|Triton Error .*out of memory|Allocation on device \d+ would exceed",
        GPU_OOM, "lower-memory",
        proves="GPU memory ran out",
        remedy="claim less GPU memory: smaller static share, fewer tokens, smaller chunk or batch, or more GPUs",
        source="PyTorch, CUDA",
    ),
    Signature(
        r"memory capacity is unbalanced",
        "config-error", "fix-environment",
        proves="free memory differs between the GPUs before anything is loaded",
        hints="a fault of this launch: mostly another process, or a leftover of the last launch, holds a GPU",
        remedy="look who holds the GPUs (nvidia-smi), and stop what is left over",
        versions="0.3-0.5.23", source="SGLang: distributed/bootstrap",
    ),
)  # fmt: skip

COMMUNICATION = (
    Signature(
        r"NCCL WARN .*(?:No space left|posix_fallocate|shared memory|/dev/shm|shmutils)",
        "collective-error", "fix-environment",
        proves="NCCL could not make its shared memory segment",
        hints="a full disk",
        remedy="give /dev/shm more room (docker: --shm-size or --ipc=host; kubernetes: a memory volume)",
        source="NCCL", alone=True,
    ),
    Signature(
        r"NCCL WARN .*(?:[Cc]onnect to .*(?:failed|returned)|No route|[Nn]o socket interface"
        r"|Network is unreachable"
        r"|[Bb]ootstrap.*(?:fail|error|timeout)|ibv_\w+ .*(?:fail|error)|NET/IB.*(?:error|fail"
        r"|timed?.?out)|status=12\b)"
        r"|socket(?:Poll|Start)Connect: Connect to",
        "collective-error", "fix-network",
        proves="NCCL could not reach another rank over the network",
        remedy="interfaces, routes and firewall between the nodes: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_IB_HCA",
        source="NCCL", alone=True,
    ),
    Signature(
        r"connectFullMesh failed|(?i:gloo.*(?:no route|unable to find|connect timeout"
        r"|timed out connecting|resolve))"
        r"|Timed out (?:after|waiting).*clients|\d+/\d+ clients joined"
        r"|(?i:client socket has (?:timed out|failed to connect))|(?i:unable to find (?:address|interface))",
        "collective-error", "fix-network",
        proves="the ranks did not find each other",
        hints="that the other node failed: it may never have been started",
        remedy="start all nodes; check --dist-init-addr, interfaces, routes and firewall between them",
        source="PyTorch, Gloo", alone=True,
    ),
    Signature(
        r"[Ww]atchdog caught collective operation timeout",
        "collective-error", "restart",
        proves="a collective operation waited for a rank that did not come",
        hints="NCCL as the culprit: the rank that is missing stopped somewhere else",
        remedy="start again, and find the rank that did not come: its log, or a stack of it while it stands",
        source="PyTorch: ProcessGroupNCCL", alone=True, retryable=True,
    ),
    Signature(
        r"EADDRINUSE|failed to listen on any local network address"
        r"|zmq\.error\.ZMQError: Address already in use",
        "port-in-use", "retry",
        proves="an internal port was taken",
        hints="the HTTP port: it is another one",
        remedy="start again: another try takes another port",
        source="PyTorch: TCPStore, ZeroMQ", retryable=True,
    ),
    Signature(
        r"\[[Ee]rrno 98\].*[Aa]ddress already in use|Port \d+ is (?:already )?(?:in use|occupied"
        r"|not available)",
        "port-in-use", "fix-argument",
        proves="the HTTP port is taken",
        remedy="stop what holds the port, or take another one",
        source="uvicorn, SGLang", alone=True,
    ),
    Signature(
        r"NCCL WARN .*(?:[Nn]o algorithm|NCCL_ALGO|NCCL_PROTO|NCCL_\w+ .*(?:invalid|not (?:supported|available)))",
        "collective-error", "fix-environment",
        proves="NCCL was told to use what it does not have for this operation",
        remedy="take the NCCL_* variable that is named out of the environment",
        source="NCCL", alone=True,
    ),
)  # fmt: skip

EXPERT_PARALLEL = (
    Signature(
        r"Assertion failed: .*(?:[Dd]eep_?EP|ibgda|nvshmem|/a2a)",
        "expert-parallel", "fix-argument",
        proves="a kernel of the expert-parallel dispatcher refused its settings",
        remedy="its buffers, queue pairs and channels do not fit: NUM_MAX_DISPATCH_TOKENS, QPs per rank, or another mode",
        source="DeepEP", alone=True,
    ),
    Signature(
        r"DeepEP error: .*(?i:timeout)|(?i:deep_?ep).*(?i:timed? ?out)",
        "expert-parallel", "restart",
        proves="the dispatcher waited for a rank that did not come",
        hints="the network: a rank that compiles or has died makes the others wait just so",
        remedy="start again; compile kernels beforehand, and look at the rank that did not answer",
        versions="0.4.5-0.5", source="DeepEP", retryable=True,
    ),
    Signature(
        r"[Dd]eep_?EP|NVSHMEM|nvshmem|ibgda|IBGDA|\bGIN: |num_rc_per_pe|moe_?a2a|(?i:all-?to-?all"
        r"|a2a) (?:backend|kernel|dispatch)"
        r"|(?i:token_?dispatcher)|ep_size.*(?:divisible|experts)|n(?:um)?_physical_experts",
        "expert-parallel", "install-or-upgrade",
        proves="the expert-parallel dispatcher failed",
        hints="NCCL or graph capture, where its words are wrapped in theirs",
        remedy="this network or these GPUs do not run this dispatcher: another version of it, or --moe-a2a-backend none",
        source="DeepEP and other dispatchers",
    ),
)  # fmt: skip

ALL_REDUCE = (
    Signature(
        r"(?i)does not support multicast|SymmDeviceMemory|allreduce[_ ]fusion requires|trtllm_allreduce|mnnvl"
        r"|custom[_ ]?all[_ ]?reduce|peer access is not supported|torch symm(?:etric)?[ _]mem"
        r"|symm(?:etric)?[ _]?mem(?:ory)?.*not supported|expandable_segments|quick_?all_?reduce|mscclpp",
        "allreduce-unsupported", "disable-feature",
        proves="a custom or fused all-reduce does not work on these GPUs, links or allocator settings",
        hints="a kernel that is merely slow: NCCL takes over once it is off",
        remedy="switch it off: --disable-custom-all-reduce, or without all-reduce fusion or symmetric memory",
        source="SGLang, FlashInfer, vLLM kernels",
    ),
    Signature(
        r"^(?:Failed: )?Cuda error \S*all_?reduce\S* ",
        "allreduce-unsupported", "disable-feature",
        proves="the custom all-reduce kernel ended the process by itself",
        remedy="switch it off: --disable-custom-all-reduce",
        source="vLLM and SGLang kernels", alone=True,
    ),
)  # fmt: skip

HARDWARE = (
    Signature(
        r"lib(?:cuda|nvidia-ml)\.so\S*:? cannot open|could not select device driver|nvidia-container-cli: .*error",
        "driver", "fix-environment",
        proves="the container was started without the GPU driver",
        hints="a package that is missing from the image",
        remedy="start the container with its GPUs (docker: --gpus all and the NVIDIA runtime)",
        source="dynamic linker, docker", alone=True,
    ),
    Signature(
        r"(?i)driver on your system is too old|driver version is insufficient|InsufficientDriver|unsupported toolchain"
        r"|forward compatibility was attempted|driver/library version mismatch|found no nvidia driver"
        r"|cuda driver.*too old",
        "driver", "install-or-upgrade",
        proves="the GPU driver is older than what the installed CUDA needs, or is missing",
        hints="that no GPU is there, which the server says afterwards",
        remedy="a newer driver, or an image for the CUDA version that this driver supports",
        source="CUDA, PyTorch", alone=True,
    ),
    Signature(
        r"(?i)fabric ?manager|system not yet initialized|uncorrectable (?:nvlink|ecc)|ECC error"
        r"|fallen off the bus|gpu is lost"
        r"|NVRM: Xid|\bXid \(|cuda(?:_| )?error.*(?:802|803)\b|unspecified driver error",
        "driver", "fix-environment",
        proves="GPU, driver or fabric are not in order",
        remedy="start the fabric manager or reset the GPU; nvidia-smi and dmesg tell which",
        source="CUDA, NVIDIA driver", alone=True,
    ),
    Signature(
        r"invalid device ordinal|No CUDA GPUs are available|gpu_id.*out of range",
        "config-error", "fix-argument",
        proves="more GPUs are asked for than this process sees",
        remedy="fit --tp-size, --base-gpu-id and the number of nodes to the visible GPUs (CUDA_VISIBLE_DEVICES)",
        source="CUDA, PyTorch",
    ),
    Signature(
        r"No accelerator .* is available",
        "driver", "fix-environment",
        proves="the server sees no GPU",
        hints="that none is there: the driver's own message stands above it",
        remedy="look at the message of the driver above it, and at what the container may see",
        versions="0.5", source="SGLang: utils/common", weight=Weight.GENERAL,
    ),
)  # fmt: skip

BACKENDS = (
    Signature(
        r"(?i)workspace.*(?:overflow|too small|not enough)|buffer overflow when allocating|increase the workspace",
        "config-error", "fix-environment",
        proves="the workspace of the attention kernels is too small for this batch",
        hints="GPU memory",
        remedy="raise SGLANG_FLASHINFER_WORKSPACE_SIZE, or lower --chunked-prefill-size",
        source="FlashInfer",
    ),
    Signature(
        r"(?i)FlashAttention.*(?:requires|only supports?)|attention[ _-]?backend.*(?:not|only|unsupported"
        r"|invalid|incompatible)"
        r"|not support(?:ed)?\b.*attention[ _-]backend|(?:fa3|fa4|flashinfer|flash_?mla|cutlass_mla"
        r"|trtllm_m[lh]a|aiter|triton"
        r"|torch_native|ascend|intel_amx|dual_chunk\w*|nsa|wave)\W* (?:attention )?backend.*(?:support"
        r"|require|only|incompat)"
        r"|backends? (?:is|are) (?:only |not )?supported|head_?dim\w*\W.*(?:not|un)\W?supported"
        r"|unsupported head"
        r"|flash_?mla.*requires|only \{.*\} .*backend",
        "attention-backend-unsupported", "change-backend",
        proves="this attention backend does not run on this GPU or with this model",
        remedy="another --attention-backend (the vision encoder has one of its own: --mm-attention-backend)",
        versions="0.4-0.5.23", source="SGLang: attention_registry, vision",
    ),
    Signature(
        r"Attn\w*Backend'? object has no attribute",
        "graph-capture-incompatible", "disable-feature",
        proves="this attention backend cannot do what the graph or compile option asks of it",
        remedy="switch the option off, or take another attention backend",
        versions="0.4-0.5.23", source="SGLang",
    ),
    Signature(
        r"(?i)out of resources?: shared memory|too many resources requested for launch",
        "unsupported-arch", "change-backend",
        proves="a kernel needs more on-chip shared memory than this GPU has",
        hints="GPU memory, host memory or /dev/shm: it is none of them",
        remedy="another attention or MoE backend, or a release that knows this GPU",
        source="Triton",
    ),
    Signature(
        r"(?i)no kernel image is available|not compiled for (?:this|your)"
        r"|does not support backend .* capability"
        r"|unsupported (?:gpu |cuda |compute )?(?:arch\w*|capability|sm\b)|requires? (?:sm|sm_"
        r"|compute capability)[ >=_]*\d"
        r"|no supported cuda architectures|only (?:supported|available|supports) (?:on|for)? ?(?:sm"
        r"|hopper|blackwell|compute)"
        r"|compute capability.*(?:required|not supported|at least|too low)"
        r"|cuda capability sm_\d+ is not compatible"
        r"|not supported on (?:this|current|your) (?:gpu|device|architecture|platform)"
        r"|device kernel image is invalid"
        r"|(?:failed|unable) to (?:find|get) .*kernel.*(?:arch|sm)\w*",
        "unsupported-arch", "change-backend",
        proves="the installed kernels have no code for this GPU",
        hints="that the GPU is too old: 10.x and 12.x are both Blackwell, with different kernels",
        remedy="a backend that has kernels for this GPU, or an image that was built for it",
        source="CUDA, FlashInfer, sgl-kernel",
    ),
)  # fmt: skip

COMPILER = (
    Signature(
        r"(?i)nvcc fatal|unsupported gpu architecture|unsupported (?:gnu|host compiler) version"
        r"|nvcc (?:version|release).*(?:torch|mismatch|<|older)"
        r"|cuda version .* mismatches|fatal error: Python\.h",
        "jit-toolchain", "install-or-upgrade",
        proves="a kernel is compiled at run time, and the compiler does not fit",
        hints="the kernel's own defect",
        remedy="a CUDA toolkit as new as the one PyTorch was built with, and as the GPU needs",
        source="nvcc",
    ),
)  # fmt: skip

TOOLCHAIN = (
    Signature(
        r"\b(?:nvcc|ninja|gcc|g\+\+|cc1plus|cicc|ptxas|c\+\+): (?:command )?not found"
        r"|(?i:No such file or directory: .*\b(?:nvcc|ninja|gcc|g\+\+|cc)\b)"
        r"|(?i:could not find (?:nvcc|cuda|a c compiler)|failed to find c compiler|CUDA_HOME"
        r"|cannot find -l(?:cuda|cudart|nvrtc))"
        r"|fatal error: .*\.(?:h|hpp|cuh)\b|\(\d+\): error: |error: .*(?:linkage|template|namespace"
        r"|identifier|declaration)|ptxas (?:fatal|error)|nvrtc: error",
        "jit-toolchain", "fix-environment",
        proves="a kernel is compiled at run time, and compiler, headers or paths are missing or wrong",
        hints="the kernel's own defect",
        remedy="set CUDA_HOME and PATH to a complete CUDA toolkit of PyTorch's version, then clear the kernel cache",
        source="nvcc, gcc, Triton",
    ),
    Signature(
        r"(?i)PTX codegen error|PTXASError|ninja (?:build failed|exited)|error (?:building|compiling) (?:extension|objects)"
        r"|jit (?:compilation|build|kernel).*(?:fail|error)"
        r"|nvrtc|compil(?:ation|er|e) (?:has )?failed|\bjit_kernel\b.*fail",
        "jit-toolchain", "fix-environment",
        proves="a kernel that is compiled at run time did not build",
        remedy="the compiler's own message below tells: set CUDA_HOME and PATH to a complete CUDA toolkit",
        source="PyTorch, FlashInfer, tvm-ffi", weight=Weight.GENERAL,
    ),
    Signature(
        r"CalledProcessError: Command .*(?:ninja|nvcc|ptxas|gcc|g\+\+|cc)\b",
        "jit-toolchain", "fix-environment",
        proves="a compiler was run and failed",
        remedy="the compiler's own message tells",
        source="Python", weight=Weight.WRAPPER,
    ),
)  # fmt: skip

PACKAGES = (
    Signature(
        r"python\S*: No module named|can't open file .*sglang|package is not available|exec: .*not found in \$PATH",
        "package-mismatch", "install-or-upgrade",
        proves="the program or a package is not installed in this environment",
        remedy="install it, or take the right environment or image",
        source="Python, shell", alone=True,
    ),
    Signature(
        r"undefined symbol|cannot open shared object file|version [`'\"]\S+' not found|GLIBCXX?_\d"
        r"|libtorch\w*\.so"
        r"|\w+ is installed with version .* (?:less than|which is)"
        r"|with minimum required version .* is not installed"
        r"|requires? \w[\w-]*[<>=]=? ?\d|(?:but|however) .* (?:is|was) installed|PackageNotFoundError"
        r"|requires the \w+ (?:library|package) but|incompatible with .*version"
        r"|compiled against (?:a different|ABI)|numpy\.dtype size changed"
        r"|operator \S+::\S+ does not exist|has no attribute '_?C'",
        "package-mismatch", "install-or-upgrade",
        proves="installed packages or system libraries do not fit each other",
        remedy="install the versions that this release pins, or take its image",
        source="dynamic linker, importlib, SGLang: assert_pkg_version",
    ),
    Signature(
        r"(?:ModuleNotFoundError|ImportError): (?=\S)|DLL load failed|cannot import name",
        "package-mismatch", "install-or-upgrade",
        proves="something cannot be imported",
        remedy="install what is missing, in the version that this release pins",
        source="Python",
    ),
    Signature(
        r"ImportError|common_ops library|(?i:please install|is not installed)",
        "package-mismatch", "install-or-upgrade",
        proves="something cannot be imported",
        remedy="the lines below tell which import failed, and why",
        source="Python, sgl-kernel", weight=Weight.GENERAL,
    ),
)  # fmt: skip

SPECULATION = (
    Signature(
        r"has no attribute '(?:set_embed\w*|hot_token_id|set_eagle3?_\w+|get_embed_and_head)'"
        r"|(?i:speculative|draft[ _-]model|draft[ _]worker)"
        r"|(?:EAGLE3?|NEXTN|NGRAM|ngram|STANDALONE|DFLASH|MTP)\b.*(?:support|require|must|invalid|cannot)"
        r"|num_draft_tokens|\bspec(?:ulative)?_\w+",
        "speculative-config", "fix-argument",
        proves="draft model, algorithm or combination of speculative decoding is wrong",
        remedy="a draft model that was trained for this target and algorithm, or without speculation",
        versions="0.4-0.5.23", source="SGLang: speculative, speculative_hook",
    ),
)  # fmt: skip

QUANTIZATION = (
    Signature(
        r"(?i)not divisible by (?:weight )?quantization|quantized weight shape|tile_[nk]_size"
        r"|size_[nk] = \d+ is not divisible|marlin\w*.*(?:not|must|divisible|shape)"
        r"|min_thread_[nk]",
        "quantization-mismatch", "fix-argument",
        proves="the shards of this split do not fit the quantization's blocks",
        remedy="another tensor-parallel size (or expert parallelism), or another quantization kernel",
        source="SGLang: quantization", versions="0.3-0.5.23",
    ),
    Signature(
        r"(?i)quantization (?:method|scheme|config\w*|argument|format).*(?:not|mismatch|unknown|invalid"
        r"|unsupported)|unknown quantization|unsupported \w*(?:scale|quant)\w*"
        r"|(?:group_size|block_[nk]|weight_scale|weight_block_size|qzeros|scales?)\b.*(?:divisible"
        r"|mismatch|must|unsupported|not support)"
        r"|KeyError: '[\w.]*(?:scale\w*|qweight|qzeros|g_idx|weight_packed)'|does not support .*(?:fp4"
        r"|nvfp4|mxfp4|awq|gptq|int4|w4a\d+)"
        r"|(?:fp4|fp8|nvfp4|mxfp4|awq|gptq|int4|int8|w\da\d+)\b.*(?:is not supported|not supported for"
        r"|requires)",
        "quantization-mismatch", "fix-argument",
        proves="the quantization does not fit the checkpoint, the split or the kernels",
        remedy="leave --quantization to the checkpoint, or change the split or the kernel",
        source="SGLang: quantization, model_config",
    ),
)  # fmt: skip

MODEL = (
    Signature(
        r"not supported for now|does not recognize this architecture|(?i:model (?:architecture|type"
        r"|class).*(?:not supported|not recognized|unknown|unsupported))"
        r"|Unrecognized (?:configuration|model)|KeyError: 'model\.|(?i:no (?:sglang"
        r"|transformers) implementation)",
        "model-unsupported", "install-or-upgrade",
        proves="this release does not know the model",
        remedy="a release (of SGLang or transformers) that knows it, or another checkpoint of it",
        source="SGLang: registry, transformers",
    ),
    Signature(
        r"(?i)401 client error|403 client error|gated repo|invalid (?:username|user token|credentials)"
        r"|unauthorized|GatedRepoError",
        "download-failed", "fix-environment",
        proves="the model may not be read with this token, or with none",
        hints="the network",
        remedy="a token with access to the model (HF_TOKEN), after accepting its terms",
        source="huggingface_hub",
    ),
    Signature(
        r"(?i)Repo(?:sitory)? ?NotFound|Repository Not Found|404 client error"
        r"|is not a local folder and is not a valid model|RevisionNotFound",
        "download-failed", "fix-argument",
        proves="there is no such model, neither here nor on the hub",
        remedy="correct --model-path; a private model needs a token",
        source="huggingface_hub, transformers",
    ),
    Signature(
        r"Repo id must|HFValidationError",
        "config-error", "fix-argument",
        proves="the model path is no folder of this machine",
        hints="the hub: nothing was asked there",
        remedy="correct --model-path, or mount the folder",
        source="huggingface_hub",
    ),
    Signature(
        r"(?i)5\d\d server error|429 client error|too many requests|IncompleteRead|ChunkedEncoding"
        r"|read timed? ?out|ConnectTimeout"
        r"|remote end closed connection|service (?:temporarily )?unavailable for url|BadGateway|SSLEOFError",
        "download-failed", "retry",
        proves="the download broke off",
        remedy="try again, or fetch the model beforehand",
        source="requests, huggingface_hub", retryable=True,
    ),
    Signature(
        r"(?i)name resolution|name or service not known|couldn't connect to|failed to resolve"
        r"|getaddrinfo failed|ProxyError"
        r"|max retries exceeded with url: /.*(?:resolve|api/models)|ConnectError.*huggingface",
        "download-failed", "fix-network",
        proves="the hub could not be reached",
        remedy="proxy, DNS or firewall; or fetch the model beforehand and start offline",
        source="requests, transformers",
    ),
    Signature(
        r"(?i)SafetensorError|invalid header|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|does not appear to have a file named"
        r"|LocalEntryNotFound|OfflineModeIsEnabled|outgoing traffic has been disabled"
        r"|consistency check failed|cannot find any model weights"
        r"|unexpected (?:eof|end of (?:file|data))|PytorchStreamReader"
        r"|No such file or directory: .*(?:safetensors|\.json|\.bin|tokenizer)"
        r"|file not fully covered|checkpoint.*(?:incomplete|missing|corrupt)",
        "download-failed", "fix-environment",
        proves="the model's files are missing or incomplete",
        hints="a defect of the loader",
        remedy="delete the incomplete files and fetch them again",
        source="safetensors, transformers, SGLang: weight_utils",
    ),
    Signature(
        r"(?i)\[Errno 28\]|no space left on device|disk quota exceeded",
        "download-failed", "fix-environment",
        proves="a file could not be written: the disk is full",
        hints="/dev/shm, where the same words come from",
        remedy="make room on the disk of the model cache, or point HF_HOME elsewhere",
        source="Python, Linux",
    ),
)  # fmt: skip

EXECUTION = (
    Signature(
        r"(?i)probability tensor contains|contains (?:either )?`?(?:inf|nan)|\bnan\b (?:detected|in"
        r"|values?|found)|logits.*\bnans?\b",
        "wrong-output", "disable-feature",
        proves="the numbers went wrong",
        hints="the sampler, where it is noticed",
        remedy="take back what changed the numbers last: cache type, quantization, fused kernels, expert parallelism",
        source="PyTorch, SGLang: sampler", alone=True,
    ),
    Signature(
        r"illegal memory access|misaligned address|illegal instruction was encountered|CUDA_EXCEPTION"
        r"|an illegal address",
        "illegal-memory-access", "disable-feature",
        proves="a kernel touched memory it must not",
        hints="the line of the traceback: kernels fail later than where they were called",
        remedy="switch off what is new; CUDA_LAUNCH_BLOCKING=1 names the kernel",
        source="CUDA", retryable=True,
    ),
    Signature(
        r"device-side assert|unspecified launch failure|CUDA error: unknown error"
        r"|CUDNN_STATUS_EXECUTION_FAILED|CUBLAS_STATUS_EXECUTION_FAILED",
        "illegal-memory-access", "disable-feature",
        proves="a kernel failed",
        hints="the line of the traceback: kernels fail later than where they were called",
        remedy="the assertion printed above tells more; CUDA_LAUNCH_BLOCKING=1 names the kernel",
        source="CUDA", weight=Weight.GENERAL, retryable=True,
    ),
    Signature(
        r"(?i)_dynamo|torch\.compile|inductor|data-dependent|not permitted when stream is capturing"
        r"|StreamCapture"
        r"|cannot be captured|graph break|has no attribute 'init_\w*graph\w*'|operation (?:failed due to"
        r"|would make).*captur|during (?:stream )?captur"
        r"|cuda graphs? (?:is|are) not (?:supported|compatible)|fake ?tensor",
        "graph-capture-incompatible", "disable-feature",
        proves="this code cannot be compiled or captured into a graph",
        remedy="switch off the graph or compile option that is named, or take another backend",
        source="PyTorch",
    ),
    Signature(
        r"Assertion `.*` failed",
        "illegal-memory-access", "disable-feature",
        proves="a kernel found a value that it must not get, mostly an index out of range",
        remedy="switch off what is new; the assertion names the condition",
        source="CUDA kernels", weight=Weight.GENERAL, alone=True, retryable=True,
    ),
)  # fmt: skip

COMMAND_LINE = (
    Signature(
        r"^(?:sglang\S*(?: \w+)?|launch_server\S*|__main__\.py|\S+\.py): error: ",
        "config-error", "fix-argument",
        proves="the arguments are refused",
        remedy="correct the argument that is named; a later release may have renamed it",
        source="argparse", alone=True,
    ),
)  # fmt: skip

SETTINGS = (
    Signature(
        r"(?i)cannot assign requested address|\[Errno 99\]",
        "config-error", "fix-argument",
        proves="this machine has no such address to listen on",
        remedy="correct --host (or --dist-init-addr): 0.0.0.0, or an address of this machine",
        source="uvicorn, PyTorch", alone=True,
    ),
    Signature(
        r"trust_remote_code|trust-remote-code",
        "config-error", "fix-argument",
        proves="the model brings code of its own, and that is not allowed yet",
        remedy="add --trust-remote-code, if the model's author is trusted",
        source="transformers",
    ),
    Signature(
        r"<Response \[50\d\]>|ProxyError|407 Proxy",
        "config-error", "fix-environment",
        proves="somebody else answered the server's own warm-up request",
        hints="a server that is up: it never saw the request",
        remedy="except its own address from the proxy: no_proxy for 127.0.0.1 and the host",
        versions="0.4-0.5", source="SGLang: http_server",
    ),
    Signature(
        r"(?i)unrecognized arguments|invalid choice|user-specified \S+ .*(?:greater|larger|exceed)"
        r"|is not divisible by|must be (?:divisible|a multiple|set|specified|greater|less|one of|equal"
        r"|at least|between|larger|smaller|used)"
        r"|is not a valid|(?:not|un)supported|does not support|doesn't support|should be"
        r"|cannot be (?:used|set|enabled|specified)|not (?:compatible|allowed)|incompatible"
        r"|mutually exclusive|conflict"
        r"|% \w+ == 0|please (?:set|use|specify|disable|enable|add|remove)|required (?:argument|when)"
        r"|not implemented for|only (?:works|supports?|available) (?:with|for|on|when)",
        "config-error", "fix-argument",
        proves="settings are refused, alone or together",
        remedy="correct the setting that is named",
        source="SGLang: server_args, argument hooks", weight=Weight.GENERAL,
    ),
)  # fmt: skip

CONSEQUENCES = (
    Signature(
        r"(?i)connection closed by (?:remote )?peer|connection reset by peer"
        r"|remote process (?:has )?exited|broken pipe|recvValue failed|sendBytes failed"
        r"|should dump|socket timeout|read error \[.*\]|peer (?:closed|disconnected)|heartbeat.*(?:lost"
        r"|timed out)|rank \d+ .*(?:disconnected|is gone)|ConnectionRefusedError|Connection refused",
        "peer-died", "ask",
        proves="another rank or node went away",
        hints="the network between them: mostly the other one died first, and its log has the cause",
        remedy="look at the log of the rank or node that went away",
        source="Gloo, NCCL, TCPStore", weight=Weight.PEER, alone=True, retryable=True,
    ),
    Signature(
        r"NCCL error|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError"
        r"|ncclInvalidUsage|DistBackendError|DistStoreError|NCCL timeout",
        "collective-error", "fix-environment",
        proves="NCCL failed",
        remedy="run again with NCCL_DEBUG=INFO: its WARN line tells what",
        source="PyTorch", weight=Weight.GENERAL,
    ),
    Signature(
        r"[Ww]atchdog timeout \((?!.*soft=True)",
        "hang", "restart",
        proves="a forward pass did not end in the watchdog's time",
        hints="py-spy, whose failure to dump stands before it",
        remedy="start again; if it comes back, take a stack of that rank while it stands",
        versions="0.4-0.5.23", source="SGLang: utils/watchdog", weight=Weight.GENERAL, alone=True, retryable=True,
    ),
    Signature(
        r"Capture \S* ?\S* ?(?:cuda|CUDA|CPU|NPU) graph failed|Fail when using backend|hit an exception"
        r"|Initialization failed|warmup error"
        r"|Subprocess \S+ .*failed|EngineCore|ProcessRaisedException|RayTaskError|ActorDiedError|EOFError$",
        "unknown", "ask",
        proves="something failed inside of it",
        remedy="read the exception that it carries",
        source="SGLang, Ray", weight=Weight.WRAPPER,
    ),
)  # fmt: skip

ENDS = (
    Signature(
        r"exit(?:ed)?(?: with)?(?: exit)? code:? -7\b|^Bus error|SIGBUS",
        "host-memory", "fix-environment",
        proves="a process died of SIGBUS: it touched a page of a file or of /dev/shm that is not there",
        remedy="give /dev/shm more room (docker: --shm-size or --ipc=host; kubernetes: a memory volume)",
        source="SGLang: utils/watchdog, shell", weight=Weight.DEATH, alone=True,
    ),
    Signature(
        r"exit(?:ed)?(?: with)?(?: exit)? ?code:? -\d+|^Segmentation fault|core dumped|^terminate called"
        r"|Fatal Python error|exit ?code[= ]-?\d+|terminated with -\d+",
        "unknown", "restart",
        proves="a process died without saying why",
        hints="the kill that follows it: the server ends its own tree with SIGKILL",
        remedy="start again; dmesg tells whether the system killed it, a core dump where it fell",
        source="SGLang: utils/watchdog, C++ runtime", weight=Weight.DEATH, alone=True, retryable=True,
    ),
    Signature(
        r"scheduler is dead|died during initialization|crashed with exit code|^Exit code: |^Killed$"
        r"|Killed +\S*python|exit(?:ed with)? code:? 1\d\d\b",
        "unknown", "restart",
        proves="a process is gone",
        hints="the OS killer: the server ends its own tree with SIGKILL too",
        remedy="start again; dmesg tells whether the system killed it",
        source="SGLang: engine, shell", weight=Weight.WRAPPER, alone=True, retryable=True,
    ),
)  # fmt: skip

SIGNATURES: tuple[Signature, ...] = (
    *FRACTION, *COMMAND_LINE, *EXPERT_PARALLEL, *COMMUNICATION, *ALL_REDUCE, *MEMORY, *HARDWARE, *SPECULATION, *COMPILER,
    *BACKENDS, *QUANTIZATION, *TOOLCHAIN, *MODEL, *PACKAGES, *EXECUTION, *CONSEQUENCES, *SETTINGS, *ENDS,
)  # fmt: skip
"""In the order in which they are tried."""

UNKNOWN = Signature(
    "", "unknown", "ask", proves="an exception was raised", remedy="nobody knows this one: read the traceback above it",
    weight=Weight.UNKNOWN,
)  # fmt: skip
"""For an exception that no row knows."""

DEATH = (
    r"hit an exception|[Rr]eceived sigquit|SIGQUIT received|died during initialization|scheduler is dead"
    r"|crashed with exit code"
    r"|Initialization failed|Fatal Python error|^terminate called|^Killed$|Killed +\S*python|^Bus error"
    r"|^Segmentation fault|core dumped"
    r"|^(?:sglang\S*(?: \w+)?|launch_server\S*|\S+\.py): error: |\[Errno 9[89]\]"
    r"|[Ww]atchdog timeout \((?!.*soft=True)"
    r"|caught collective operation timeout|[Ee]xception in (?:ControllerSingle|ModelTpServer|ModelRpc)"
    r"|router init state: Traceback"
    r"|Failed: Cuda error|unexpectedly failed with|terminated with -\d+|Application startup failed|python\S*: No module named"
    r"|could not select device driver"
)
"""Lines after which the server cannot go on."""

STOP = r"SIGTERM received|SIGINT received|Gracefully exiting|Shutting down\.?$|KeyboardInterrupt|^\^C"
"""Lines of a server that was asked to end."""

HINT_LIST = r"^Possible (?:solutions|suggestions|reasons)"
"""Opens a list that is printed for every cause alike."""

REQUEST_LEVEL = r"Exception in ASGI|Exception ignored in|resource_tracker|Error in (?:streaming|request)"
"""Said before a traceback that ends a request, or comes from taking down, and not the server."""

MISLEADING: tuple[tuple[str, str], ...] = (
    ("Possible solutions:", "the list of possible solutions is printed for every cause alike"),
    ("Possible suggestions:", "the list of possible suggestions is printed for every cause alike"),
    ("eceived sigquit", "the sigquit line is a consequence, also where it stands before the traceback"),
    ("SIGQUIT received", "the SIGQUIT line is a consequence, also where it stands before the traceback"),
    ("recvValue failed", "the other ranks' connection errors only show that somebody is gone"),
    ('"should dump"', "the other ranks' connection errors only show that somebody is gone"),
    ("onnection closed by peer", "the other ranks' connection errors only show that somebody is gone"),
    ("asynchronously reported", "kernels fail later than where the traceback stands"),
    ("py-spy", "that no stack could be dumped is not the trouble"),
    ("exit code 137", "137 is the server's own SIGKILL of its tree, and not a lack of memory by itself"),
)
"""Words of a line, and why not to believe it."""
